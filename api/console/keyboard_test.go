package console_test

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/tocsinhq/tocsin"
)

// press presses keys, one after the other.
func (b *tab) press(keys string) {
	b.t.Helper()
	b.does(chromedp.KeyEvent(keys))
}

// focused is an expression that is true while a part of the page that a selector names has the focus.
func focused(selector string) string {
	return "document.activeElement.matches('" + selector + "')"
}

// tabTo presses Tab until a part of the page has the focus.
func (b *tab) tabTo(selector string) {
	b.t.Helper()
	for range 100 {
		if b.press("\t"); js[bool](b, focused(selector)) {
			return
		}
	}
	b.t.Fatalf("Tab does not lead to %s", selector)
}

// stop returns which of the parts that take the focus has it, in the order of the page, and notes if nobody sees that.
const stop = `(() => {
	const all = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex='0']")].filter((e) => e.checkVisibility());
	const at = document.activeElement, look = getComputedStyle(at), box = at.getBoundingClientRect();
	const seen = look.outlineStyle !== "none" && parseFloat(look.outlineWidth) >= 2 && box.right > 0 && box.left < innerWidth && box.bottom > 0 && box.top < innerHeight;
	return [all.indexOf(at), all.length, seen ? 1 : 0];
})()`

// walk presses Tab from the top of a page to its end: each link and each field comes once, in the order of the page, and is seen to have the focus.
func (b *tab) walk(path string) {
	b.t.Helper()
	b.to(path, "h1")
	for at := -1; ; {
		b.press("\t")
		now := js[[]int](b, stop)
		if now[0] == at { // the next part of a date
			continue
		}
		if now[0] != at+1 || now[2] == 0 {
			b.t.Errorf("%s: Tab leads from %d to %d of %d, which is seen: %d; it is %s", path, at, now[0], now[1], now[2], js[string](b, "document.activeElement.outerHTML.slice(0, 200)"))
			return
		}
		if at = now[0]; at == now[1]-1 {
			return
		}
	}
}

// All can be done without a mouse: find, select and act, pause, change language and zone. The focus can be seen.
func TestAKeyboardIsEnough(t *testing.T) {
	t.Parallel()
	s := serve(t, changes{})
	s.add(closing.New(1, "{}", tocsin.In(time.Hour)))
	s.add(closing.New(42, "{}", tocsin.In(time.Hour)))
	b := s.open(t, 1280, 700)
	b.walk("/tasks?status=pending")
	b.to("/", "#types table")
	b.press("\t")
	b.press("\r")
	b.until(focused("#main"))
	b.tabTo(`[id="pause-order.close"] summary`)
	b.press("\r")
	b.tabTo(`button[value="pause"]`)
	b.press("\r")
	b.until(`document.querySelector(".good[role=status]")?.textContent.includes("The biz type is paused") ?? false`)

	b.until(`document.documentElement.classList.contains("live")`) // the page listens to keys
	b.press("/")
	b.until(focused("#q"))
	js[string](b, `document.activeElement.value = ""`) // the driver types a key that a page has taken, too
	b.press("42\r")
	b.until(`document.querySelector("#row")?.textContent.includes("biz_id42") ?? false`)

	b.to("/tasks?status=pending", "table")
	b.tabTo(`input[name="job_id"]`)
	b.press(" ")
	b.tabTo(`select[name="act"]`)
	b.press("c") // cancel
	b.tabTo(`input[name="reason"]`)
	b.press("void\r")
	b.until(`document.querySelector("main")?.textContent.includes("Done: 1. Failed: 0.") ?? false`)

	b.tabTo(".me summary")
	b.press("\r")
	b.tabTo(`select[name="lang"]`)
	b.press(kb.Escape)
	b.until(focused(".me summary") + ` && !document.querySelector(".me").open`)
	b.press("\r")
	b.tabTo(`select[name="lang"]`)
	b.press(kb.ArrowDown)
	b.tabTo(`input[name="other"]`)
	b.press("Asia/Shanghai\r")
	b.until(`document.documentElement?.lang === "zh-CN" && (document.querySelector("footer")?.textContent.includes("Asia/Shanghai") ?? false)`)
}
