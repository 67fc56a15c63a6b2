package operator_test

import (
	"context"
	"fmt"

	"github.com/tocsinhq/tocsin"
	"github.com/tocsinhq/tocsin/operator"
)

// Tasks that died of a fault that is mended by now are looked at, and delivered once more.
func Example() {
	var (
		ctx context.Context
		cfg tocsin.Config // as the service's client has it
	)
	o, err := operator.Open(ctx, cfg)
	if err != nil {
		panic(err)
	}
	defer o.Close()
	dead, err := o.Find(ctx, operator.Query{Status: tocsin.Dead, BizType: "order.close", Limit: 100})
	if err != nil {
		panic(err)
	}
	for _, task := range dead {
		fmt.Println(task.JobID, task.LastError)
	}
	redriven, err := o.RedriveAll(ctx, "order.close", nil)
	fmt.Println(redriven, err)
}
