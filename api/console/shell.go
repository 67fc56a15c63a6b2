package console

import (
	"fmt"
	"regexp"
	"strings"
)

// plainWord is what a shell takes as it is.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9._:@%+,/=-]+$`)

// quoted is a word of a shell's command. Characters that can't be seen are written by their bytes, so that what is copied from a page is
// the word itself.
func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	if strings.ContainsFunc(word, unseen) {
		var b strings.Builder
		for _, c := range []byte(word) {
			if c < ' ' || c > '~' || c == '\'' || c == '\\' {
				fmt.Fprintf(&b, `\%03o`, c)
			} else {
				b.WriteByte(c)
			}
		}
		return "$'" + b.String() + "'"
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// words is a command and its arguments. A flag whose value is "" is left out.
func words(command string, arguments ...string) string {
	for i := 0; i < len(arguments); i++ {
		if strings.HasPrefix(arguments[i], "--") && i+1 < len(arguments) {
			if arguments[i+1] != "" {
				command += " " + quoted(arguments[i]) + " " + quoted(arguments[i+1])
			}
			i++
			continue
		}
		command += " " + quoted(arguments[i])
	}
	return command
}

// curl is the command that sends a request to the API.
func (v *visit) curl(method, path, body string) string {
	scheme := "http"
	if overTLS(v.r) {
		scheme = "https"
	}
	command := "curl -sS " + quoted(scheme+"://"+v.r.Host+"/v1"+path)
	if method != "GET" {
		command = "curl -sS -X " + method + strings.TrimPrefix(command, "curl -sS")
	}
	if v.cfg.Tokens != nil {
		command += ` -H "Authorization: Bearer $TOCSIN_TOKEN"`
	}
	if body != "" {
		command += " -H 'Content-Type: application/json' -d " + quoted(body)
	}
	return command
}
