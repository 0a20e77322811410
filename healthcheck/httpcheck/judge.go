package httpcheck

import (
	"bytes"
	"fmt"
	"hash"
	"io"
	"net/http"
	"slices"

	"github.com/lbd-project/lbd/healthcheck"
)

// judge says what is wrong with an answer. It reads the whole body, unless the
// status or the header is wrong already.
func (k *checker) judge(x *exchange, answer *http.Response) error {
	if err := judgeStatus(x.Status, answer); err != nil {
		return err
	}
	for i := range x.Headers {
		if err := x.Headers[i].judge(answer.Header); err != nil {
			return err
		}
	}
	var (
		body bytes.Buffer
		sum  hash.Hash
		to   = io.Discard
	)
	if x.Match != nil {
		to = &body
	}
	if x.digest != nil {
		sum = x.digest.new()
		if to = io.Writer(sum); x.Match != nil {
			to = io.MultiWriter(sum, &body)
		}
	}
	n, err := io.Copy(to, io.LimitReader(answer.Body, k.spec.MaxBody+1))
	if err != nil {
		return fmt.Errorf("read body: %w", explain(err))
	}
	if n > k.spec.MaxBody {
		return fmt.Errorf("the body is longer than %d bytes", k.spec.MaxBody)
	}
	if x.digest != nil {
		if err := x.digest.check(sum); err != nil {
			return encoded(err, answer)
		}
	}
	if x.Match == nil || x.matches(body.Bytes()) != x.Negate {
		return nil
	}
	if x.Negate {
		return fmt.Errorf("the body of %d bytes matches %.80q%s, which it must not", n, x.Match, x.offsets())
	}
	return encoded(fmt.Errorf("the body of %d bytes does not match %.80q%s", n, x.Match, x.offsets()), answer)
}

// matches says whether a body has a match that begins where it must. The first
// one tells: those after it begin later.
func (r *Request) matches(body []byte) bool {
	if r.MinOffset > len(body) {
		return false
	}
	at := r.Match.FindIndex(body[r.MinOffset:])
	return at != nil && (r.MaxOffset == 0 || r.MinOffset+at[0] <= r.MaxOffset)
}

// offsets says where a match must begin, unless that is anywhere.
func (r *Request) offsets() string {
	switch {
	case r.MaxOffset > 0:
		return fmt.Sprintf(" at offset %d to %d", r.MinOffset, r.MaxOffset)
	case r.MinOffset > 0:
		return fmt.Sprintf(" at offset %d or later", r.MinOffset)
	}
	return ""
}

// judge says what is wrong with a header. It does not quote values: they may be
// secrets, such as cookies.
func (m *HeaderMatch) judge(header http.Header) error {
	values := header.Values(m.Name)
	switch matches := slices.ContainsFunc(values, m.Match.MatchString); {
	case matches == !m.Negate:
		return nil
	case matches:
		return fmt.Errorf("the header %s matches %.80q, which it must not", m.Name, m.Match)
	case len(values) == 0:
		return fmt.Errorf("the answer has no header %s", m.Name)
	}
	return fmt.Errorf("the header %s does not match %.80q", m.Name, m.Match)
}

func judgeStatus(want StatusRanges, answer *http.Response) error {
	switch status := answer.StatusCode; {
	case status < minStatus || status > maxStatus:
		return fmt.Errorf("status %03d is not within %d to %d", status, minStatus, maxStatus)
	case want.Contain(status):
		return nil
	case status/100 == 3 && answer.Header.Get("Location") != "":
		return fmt.Errorf("status %d is not %v (redirects are not followed: %s)", status, want, healthcheck.Printable(answer.Header.Get("Location")))
	default:
		return fmt.Errorf("status %d is not %v", status, want)
	}
}

// encoded adds to err that the body is not what people see of it.
func encoded(err error, answer *http.Response) error {
	if e := answer.Header.Get("Content-Encoding"); e != "" {
		return fmt.Errorf("%w (it has the Content-Encoding %s, which nobody asked for)", err, healthcheck.Printable(e))
	}
	return err
}
