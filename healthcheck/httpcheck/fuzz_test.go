package httpcheck

import (
	"crypto/sha256"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// FuzzAnswer has any bytes as a server's answer. What is called healthy has a
// status, a digest and a match; what is not has an error that can be printed.
func FuzzAnswer(f *testing.F) {
	f.Add("HTTP/1.0 200 OK\r\n\r\nready", "GET", false)
	f.Add("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nready\r\n0\r\nA: b\r\n\r\n", "GET", false)
	f.Add("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nready", "POST", true)
	f.Add("HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nrea", "HEAD", false)
	f.Add("HTTP/1.1 099 OK\r\n\r\n", "GET", true)
	f.Add("\x15\x03\x01\x00\x02\x02\x46", "GET", false)
	sum := sha256.Sum256([]byte("ready"))
	d, err := parseDigest(fmt.Sprintf("sha256:%x", sum))
	if err != nil {
		f.Fatal(err)
	}
	const most = 1000
	k := &checker{spec: Check{MaxBody: most}}
	f.Fuzz(func(t *testing.T, answer, method string, negate bool) {
		for _, x := range []*exchange{
			{Request: Request{Match: regexp.MustCompile("rea"), Negate: negate, Status: StatusRanges{{100, 599}}}},
			{digest: d},
		} {
			got, err := readAnswer(strings.NewReader(answer), method)
			if err != nil {
				err = explain(err)
			} else {
				err = k.judge(x, got)
				got.Body.Close()
			}
			if err != nil {
				if s := err.Error(); len(s) > 400 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsGraphic(r) }) {
					t.Fatalf("%q: error %q", answer, s)
				}
				continue
			}
			if got.StatusCode < 100 || got.StatusCode > 599 || got.ProtoMajor != 1 {
				t.Fatalf("%q is healthy with %s %s", answer, got.Proto, got.Status)
			}
			body, err := bodyOf(answer, method)
			switch {
			case err != nil || len(body) > most:
				t.Fatalf("%q is healthy with a body of %d bytes, %v", answer, len(body), err)
			case x.Match != nil && strings.Contains(body, "rea") == negate:
				t.Fatalf("%q is healthy with %q, negated %v", answer, body, negate)
			case x.digest != nil && (body != "ready" || got.StatusCode/100 != 2):
				t.Fatalf("%q is healthy with %s, %q", answer, got.Status, body)
			}
		}
	})
}

// bodyOf reads the body once more, without limits.
func bodyOf(answer, method string) (string, error) {
	got, err := readAnswer(strings.NewReader(answer), method)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(got.Body)
	return string(b), err
}

// FuzzParseStatusRanges reads again what it prints.
func FuzzParseStatusRanges(f *testing.F) {
	for _, s := range []string{"200", "200-299, 404", "3xx,5XX", "099", "6xx", "200-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		ranges, err := ParseStatusRanges(s)
		if err != nil {
			return
		}
		again, err := ParseStatusRanges(ranges.String())
		if err != nil || again.String() != ranges.String() {
			t.Fatalf("%q: %v becomes %v, %v", s, ranges, again, err)
		}
		for status := -1; status < 1100; status++ {
			if ranges.Contain(status) && (status < 100 || status > 599) {
				t.Fatalf("%q has %d", s, status)
			}
		}
	})
}
