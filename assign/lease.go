package assign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// errLost says that the node must not act on its ownership any more.
var errLost = errors.New("the lease is lost")

// lease is one lease of one incarnation.
type lease struct {
	client  *clientv3.Client
	id      clientv3.LeaseID
	ttl     time.Duration // as granted, which may be more than asked
	trust   *trust
	metrics *metrics
	outage  func() // called after a renewal that came late: others may have lost their leases
}

// grantLease asks for a lease of ttl. It is trusted from the start of the call.
func grantLease(ctx context.Context, client *clientv3.Client, ttl time.Duration, t *trust) (*lease, error) {
	ctx, cancel := context.WithTimeout(ctx, ttl/2)
	defer cancel()
	start := time.Now()
	resp, err := client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, fmt.Errorf("grant a lease of %s in etcd: %w", ttl, err)
	}
	l := &lease{client: client, id: resp.ID, ttl: time.Duration(resp.TTL) * time.Second, trust: t}
	t.renew(start, l.ttl)
	return l, nil
}

// keep renews the lease three times per TTL until ctx ends (nil) or the lease is lost (errLost): etcd says so, or it can't
// be relied on any more by our own clock.
func (l *lease) keep(ctx context.Context) error {
	pause := time.NewTimer(l.ttl / 3)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		err := l.renew(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			return fmt.Errorf("%w: etcd has ended it", errLost)
		case l.trust.left() <= 0:
			return fmt.Errorf("%w: not renewed in time: %w", errLost, err)
		case err != nil:
			pause.Reset(min(l.ttl/20, l.trust.left()))
		default:
			pause.Reset(l.ttl / 3)
		}
	}
}

// renew renews once, within a third of the TTL and while the lease is trusted.
func (l *lease) renew(ctx context.Context) error {
	left := l.trust.left()
	late := left < l.ttl/2-margin(l.ttl) // the last success began more than half a TTL ago
	attempt, cancel := context.WithTimeout(ctx, min(l.ttl/3, left))
	defer cancel()
	start := time.Now()
	resp, err := l.client.KeepAliveOnce(attempt, l.id)
	if err != nil {
		l.metrics.renewalFailures.Inc()
		return fmt.Errorf("renew lease %s in etcd: %w", leaseText(l.id), err)
	}
	l.trust.renew(start, time.Duration(resp.TTL)*time.Second)
	l.metrics.renewals.Inc()
	if late {
		l.outage()
	}
	return nil
}

// revoke ends the lease, and with it all keys under it, in one step. ctx bounds it.
func (l *lease) revoke(ctx context.Context) error {
	if _, err := l.client.Revoke(ctx, l.id); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("revoke lease %s in etcd: %w", leaseText(l.id), err)
	}
	return nil
}
