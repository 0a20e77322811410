package grpccheck

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/lbd-project/lbd/internal/checktest"
)

// FuzzJudge has any answer of HTTP. Healthy is the one that says so: status 200,
// gRPC, OK and SERVING.
func FuzzJudge(f *testing.F) {
	f.Add(200, "application/grpc", "0", "", false, []byte(serving))
	f.Add(200, "application/grpc+proto", "12", "no%20such\x1b%0a", true, []byte(nil))
	f.Add(404, "text/html", "", "", false, []byte("<html>"))
	f.Add(200, "application/grpc", "99999999999", "%", false, []byte("\x00\x00\x00\x00\x02\x08\x02"))
	f.Fuzz(func(t *testing.T, status int, kind, code, message string, early bool, body []byte) {
		trailer := http.Header{"Grpc-Status": {code}, "Grpc-Message": {message}}
		answer := &http.Response{
			StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Trailer: trailer,
			Body: io.NopCloser(bytes.NewReader(body)),
		}
		if early {
			answer.Header, answer.Trailer = trailer, nil
			answer.Header["Content-Type"] = []string{kind}
		}
		k := &checker{spec: Check{Service: "shop.v1.Cart"}}
		err := k.judge(answer)
		if err != nil {
			checktest.Shown(t, err.Error())
			return
		}
		state, err := decodeResponse(body[min(len(body), 5):])
		if status != 200 || !isGRPC(kind) || early && code != "" || code == "" || state != statusServing || err != nil {
			t.Fatalf("healthy with status %d, %q, code %q, body %q", status, kind, code, body)
		}
	})
}
