package chaos

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/Shopify/toxiproxy/v2/toxics"

	"github.com/tocsinhq/tocsin/internal/devserver"
	"github.com/tocsinhq/tocsin/internal/loop"
)

// How a freeze is aimed at the moment at which a run is admitted.
const (
	aimWithin = 2 * time.Second      // how long it waits for its moment
	stopping  = 5 * time.Millisecond // from the signal until all threads of the process stand still
	aimLeast  = deliveryTimeout + 300*time.Millisecond
)

// AimedFreezes returns a number of freezes within a length, on all nodes in turn. Each is longer than the time-out of a delivery.
func AimedFreezes(seed uint64, length time.Duration, o Options, n int) (steps []Step) {
	o = o.withDefaults()
	rng := rand.New(rand.NewPCG(seed, 0xa13))
	each := (length - calmBegin - calmEnd) / time.Duration(n)
	most := max(each*time.Duration(o.Nodes)-recovering/2, aimLeast+time.Second)
	for i := range n {
		steps = append(steps, Step{At: calmBegin + time.Duration(i)*each, Length: draw(rng, aimLeast, most), Fault: FreezeNode, Node: i % o.Nodes})
	}
	return steps
}

// aims are the freezes that wait for their moment, by the link that they watch: the proxy makes the watches.
var aims sync.Map

// aim freezes a process once.
type aim struct {
	once   sync.Once
	freeze func()
	frozen chan struct{}
}

func (a *aim) shoot() {
	a.once.Do(func() {
		a.freeze()
		close(a.frozen)
	})
}

// aimWatch watches the statements of a process. It has the process frozen before it passes on the COMMIT that admits a run: the server commits, and the
// process does not get the answer before it goes on.
type aimWatch struct {
	Link string `json:"link"`
}

func init() { toxics.Register("aim", new(aimWatch)) }

// claimMark is in the statement by which a run is admitted.
var claimMark = []byte("UPDATE /* tocsin schedule begin */")

// Pipe passes on what the process sends.
func (w *aimWatch) Pipe(stub *toxics.ToxicStub) {
	claims := false
	for {
		select {
		case <-stub.Interrupt:
			return
		case c := <-stub.Input:
			if c == nil {
				stub.Close()
				return
			}
			if claims = claims || bytes.Contains(c.Data, claimMark); claims && bytes.Contains(c.Data, []byte("COMMIT")) {
				claims = false
				if a, waits := aims.Load(w.Link); waits {
					a.(*aim).shoot()
				}
			}
			stub.Output <- c
		}
	}
}

// freezeAtClaim freezes the process in a seat at the moment at which a run is admitted to it, or 2 s later.
func (s *Site) freezeAtClaim(ctx context.Context, at *seat, p *devserver.Process) error {
	a := &aim{freeze: func() { p.Signal(syscall.SIGSTOP); _ = loop.Wait(ctx, stopping) }, frozen: make(chan struct{})}
	for _, l := range at.servers {
		if err := l.watch(a); err != nil {
			return err
		}
	}
	within, cancel := context.WithTimeout(ctx, aimWithin)
	defer cancel()
	select {
	case <-a.frozen:
		s.aimed.Add(1)
	case <-within.Done():
		a.shoot()
	}
	for _, l := range at.servers {
		if err := l.unwatch(); err != nil {
			return err
		}
	}
	return nil
}

// watch has an aim see what the process sends.
func (l *link) watch(a *aim) error {
	aims.Store(l.proxy.Name, a)
	text := fmt.Sprintf(`{"name": "aim", "type": "aim", "stream": "upstream", "attributes": {"link": %q}}`, l.proxy.Name)
	_, err := l.proxy.Toxics.AddToxicJson(bytes.NewReader([]byte(text)))
	return err
}

func (l *link) unwatch() error {
	aims.Delete(l.proxy.Name)
	return l.proxy.Toxics.RemoveToxic(context.Background(), "aim")
}
