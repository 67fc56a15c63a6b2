package tocsin

import (
	"context"

	"github.com/tocsinhq/tocsin/internal/mysql"
	"github.com/tocsinhq/tocsin/internal/seam"
)

func init() {
	seam.MoverOf = func(client any) seam.Mover { return mover{client.(*Client)} }
	seam.RefOf = func(ref any) (string, uint64, string) {
		r := ref.(Ref)
		return r.bizType, r.bizID, r.bizKey
	}
	seam.NoTx = func(ctx context.Context, tx any) error {
		in, _ := tx.(Tx)
		return noTx(ctx, in)
	}
	seam.Specs = func(config any) []mysql.Spec { return config.(Config).specs() }
}

// mover is the seam.Mover of a client.
type mover struct{ *Client }
