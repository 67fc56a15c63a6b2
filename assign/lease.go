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
	lasts   time.Duration // as granted, which may be more than asked
	ttl     time.Duration // for which it is relied on: the same, at most longestTrust
	trust   *trust
	metrics *metrics
	outage  func()                      // called after a renewal that came late: others may have lost their leases
	doubt   func(first bool, why error) // called after each renewal that failed when the trust had run out, though etcd has not said that the lease has ended
	renewed func()                      // called after each renewal
	proven  func()                      // called when it is trusted again after a doubt
}

// grantLease asks for a lease of ttl, and for no longer than that, since the lease would have ended. It is trusted from the
// start of the call.
func grantLease(ctx context.Context, client *clientv3.Client, ttl time.Duration, t *trust) (*lease, error) {
	ctx, cancel := context.WithTimeout(ctx, ttl)
	defer cancel()
	start := time.Now()
	resp, err := client.Grant(ctx, int64(ttl/time.Second))
	if err != nil {
		return nil, fmt.Errorf("grant a lease of %s in etcd: %w", ttl, err)
	}
	lasts := time.Duration(resp.TTL) * time.Second
	l := &lease{client: client, id: resp.ID, lasts: lasts, ttl: min(lasts, longestTrust), trust: t}
	t.renew(start, l.ttl)
	return l, nil
}

// keep renews the lease three times per ttl until ctx ends (nil) or etcd says that it has ended (errLost). Where etcd does
// not answer, the trust runs out, and comes back with the first renewal that succeeds: etcd has not ended the lease then,
// so nobody else can have had a table meanwhile.
func (l *lease) keep(ctx context.Context) error {
	pause := time.NewTimer(l.due())
	defer pause.Stop()
	for trusted := true; ; {
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
		case err == nil:
			l.renewed()
			if !trusted {
				trusted = true
				l.proven()
			}
			pause.Reset(l.due())
		case l.trust.left() > 0:
			pause.Reset(min(l.ttl/20, l.trust.left()))
		default:
			l.doubt(trusted, err)
			trusted = false
			pause.Reset(l.ttl / 20)
		}
	}
}

// due returns how long to wait before the next renewal: a third of the ttl from the start of the last one.
func (l *lease) due() time.Duration {
	return max(l.trust.left()+margin(l.ttl)-l.ttl*2/3, 0)
}

// renew renews once, within a third of the ttl, and no longer than the lease is trusted, so that the end of the trust is
// noticed when it comes.
func (l *lease) renew(ctx context.Context) error {
	left := l.trust.left()
	late := left < l.ttl/2-margin(l.ttl) // the last success began more than half a ttl ago
	if left <= 0 {
		left = l.ttl / 3
	}
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
