package tocsinkafka_test

import (
	"testing"

	"github.com/tocsinhq/tocsin/contrib/tocsinkafka/broker"
	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestMain(m *testing.M) {
	broker.Main()
	devtest.Main(m)
}
