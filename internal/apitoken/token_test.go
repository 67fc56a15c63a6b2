package apitoken_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsinhq/tocsin/internal/apitoken"
)

func made(t *testing.T, scope apitoken.Scope, types ...string) (string, apitoken.Token) {
	t.Helper()
	text, token, err := apitoken.New(apitoken.Token{Name: "shop", Scope: scope, BizTypes: types})
	if err != nil {
		t.Fatal(err)
	}
	return text, token
}

func TestATokenIsFoundByItsWholeTextAlone(t *testing.T) {
	t.Parallel()
	text, token := made(t, apitoken.Write, "order.*")
	other, another := made(t, apitoken.Read, "*")
	set, err := apitoken.NewSet([]apitoken.Token{token, another})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if found, ok := set.Find(text, now); !ok || found.ID != token.ID || strings.Contains(found.SHA256, text) {
		t.Errorf("%+v, %t", found, ok)
	}
	secret := text[strings.LastIndex(text, "_"):]
	for _, wrong := range []string{
		"", "toc", "toc__", text[1:], text + "a", text[:len(text)-1], strings.ToUpper(text), token.SHA256, "toc_" + token.ID + "_", "toc_" + another.ID + secret,
		strings.Replace(text, "toc_", "tok_", 1), "toc_aaaaaaaa" + secret,
	} {
		if found, ok := set.Find(wrong, now); ok {
			t.Errorf("%q is %+v", wrong, found)
		}
	}
	if _, ok := set.Find(other, now); !ok {
		t.Error("the other token is not found")
	}
	if len(text) != len("toc_")+8+1+52 {
		t.Errorf("%d characters", len(text))
	}
}

func TestATokenEndsAtItsExpiry(t *testing.T) {
	t.Parallel()
	text, token := made(t, apitoken.Read, "*")
	token.Expires = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	set, err := apitoken.NewSet([]apitoken.Token{token})
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Time]bool{token.Expires.Add(-1): true, token.Expires: false, token.Expires.Add(1): false} {
		if _, ok := set.Find(text, at); ok != want {
			t.Errorf("at %s: %t", at, ok)
		}
	}
}

func TestAScopeIncludesThoseBeforeIt(t *testing.T) {
	t.Parallel()
	order := []apitoken.Scope{apitoken.Read, apitoken.Write, apitoken.Operate}
	for i, has := range order {
		for j, needs := range order {
			if has.Allows(needs) != (i >= j) {
				t.Errorf("%s allows %s: %t", has, needs, has.Allows(needs))
			}
		}
	}
	if apitoken.Scope("").Allows(apitoken.Read) {
		t.Error("no scope allows to read")
	}
}

func TestATokenSeesTheBizTypesOfItsPatterns(t *testing.T) {
	t.Parallel()
	_, token := made(t, apitoken.Read, "order.*", "coupon.remind")
	for bizType, want := range map[string]bool{"order.close": true, "order.a.b": true, "orders.close": false, "coupon.remind": true, "coupon.reminder": false, "#7": false, "": false} {
		if token.Sees(bizType) != want {
			t.Errorf("%q: %t", bizType, token.Sees(bizType))
		}
	}
	if token.SeesAll() {
		t.Error("it sees all")
	}
	_, all := made(t, apitoken.Read, "*")
	if !all.SeesAll() || !all.Sees("#7") {
		t.Error("* does not see all")
	}
}

func TestAWrongTokenOfTheConfigIsSaid(t *testing.T) {
	t.Parallel()
	_, good := made(t, apitoken.Read, "*")
	for want, change := range map[string]func(*apitoken.Token){
		"want 8 characters":            func(t *apitoken.Token) { t.ID = "short" },
		"want 64 hexadecimal digits":   func(t *apitoken.Token) { t.SHA256 = "toc_secret" },
		`scope "admin": use read`:      func(t *apitoken.Token) { t.Scope = "admin" },
		"biz_types is empty":           func(t *apitoken.Token) { t.BizTypes = nil },
		`biz type "[a": use a name`:    func(t *apitoken.Token) { t.BizTypes = []string{"[a"} },
		`name "a b": use letters`:      func(t *apitoken.Token) { t.Name = "a b" },
		"the id stands here twice":     func(*apitoken.Token) {},
		`biz type "Order.*": use a na`: func(t *apitoken.Token) { t.BizTypes = []string{"Order.*"} },
	} {
		wrong := good
		change(&wrong)
		if _, err := apitoken.NewSet([]apitoken.Token{good, wrong}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		} else if strings.Contains(err.Error(), "toc_secret") {
			t.Errorf("the message holds the secret: %v", err)
		}
	}
}
