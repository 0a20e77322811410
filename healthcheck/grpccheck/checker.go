package grpccheck

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/lbd-project/lbd/healthcheck"
	"github.com/lbd-project/lbd/healthcheck/httpconn"
	"github.com/lbd-project/lbd/healthcheck/stream"
)

// wireLimit is how many bytes a server may send.
const wireLimit = 1 << 20

const method = "/grpc.health.v1.Health/Check"

// checker implements healthcheck.Checker. Its spec has every default filled in.
type checker struct {
	spec     Check
	target   netip.AddrPort
	env      healthcheck.Env
	tls      *tls.Config
	question []byte
}

// Check implements healthcheck.Checker.
func (k *checker) Check(ctx context.Context) (healthcheck.Result, error) {
	begun := time.Now()
	var r healthcheck.Result
	err := k.ask(ctx, &r)
	if r.Latency = time.Since(begun); err == nil {
		r.Detail = statusServing.String()
	}
	return r, err
}

func (k *checker) ask(ctx context.Context, r *healthcheck.Result) error {
	c, err := stream.DialLimit(ctx, k.spec.Via, k.env, k.target, wireLimit)
	if err != nil {
		return err
	}
	defer c.Close()
	if k.tls != nil {
		state, err := c.StartTLS(ctx, k.tls)
		if err != nil {
			return err
		}
		r.Warning = k.spec.TLS.Warning(state, time.Now())
	}
	client, err := httpconn.NewHTTP2(ctx, c.Conn)
	if err != nil {
		return httpconn.Explain(err)
	}
	defer client.Close()
	answer, err := client.RoundTrip(k.request(ctx))
	if err != nil {
		return httpconn.Explain(err)
	}
	defer answer.Body.Close()
	return k.judge(answer)
}

func (k *checker) request(ctx context.Context) *http.Request {
	u := &url.URL{Scheme: "http", Host: k.spec.Authority, Path: method}
	if k.tls != nil {
		u.Scheme = "https"
	}
	r := &http.Request{
		Method: http.MethodPost, URL: u, Host: k.spec.Authority,
		Header: http.Header{
			"Content-Type": {"application/grpc"},
			"Te":           {"trailers"},
			"User-Agent":   {"lbd"},
		},
		Body:          io.NopCloser(bytes.NewReader(k.question)),
		ContentLength: int64(len(k.question)),
	}
	if end, ok := ctx.Deadline(); ok {
		// At most eight digits.
		left := min(max(time.Until(end).Milliseconds(), 1), 99999999)
		r.Header.Set("Grpc-Timeout", strconv.FormatInt(left, 10)+"m")
	}
	return r.WithContext(ctx)
}

// judge says what is wrong with an answer.
func (k *checker) judge(answer *http.Response) error {
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP status %03d: the server speaks HTTP/2, but no gRPC there", answer.StatusCode)
	}
	if kind := answer.Header.Get("Content-Type"); !isGRPC(kind) {
		return fmt.Errorf("the answer is %s and not application/grpc", healthcheck.Printable(strconv.Quote(kind)))
	}
	// An answer without a message has its trailer in the header.
	trailer := answer.Header
	var message []byte
	if trailer.Get("Grpc-Status") == "" {
		var err error
		if message, err = readMessage(answer.Body); err != nil {
			if errors.Is(err, errFrame) {
				return err
			}
			return fmt.Errorf("read message: %w", httpconn.Explain(err))
		}
		trailer = answer.Trailer
	}
	if err := k.outcome(trailer); err != nil {
		return err
	}
	if message == nil {
		return errors.New("the server says OK without a message")
	}
	status, err := decodeResponse(message)
	if err != nil {
		return err
	}
	if status != statusServing {
		return fmt.Errorf("the server says %v", status)
	}
	return nil
}
