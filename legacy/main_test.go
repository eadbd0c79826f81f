package legacy_test

import (
	"os"
	"testing"

	"github.com/forge-es/forge-es/legacy/legacytest"
)

func TestMain(m *testing.M) {
	legacytest.Main()
	os.Exit(m.Run())
}
