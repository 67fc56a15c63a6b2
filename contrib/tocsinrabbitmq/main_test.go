package tocsinrabbitmq_test

import (
	"testing"

	"github.com/tocsinhq/tocsin/internal/devserver/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }
