package grpccheck

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// servingStatus is HealthCheckResponse.ServingStatus.
type servingStatus int32

const statusServing servingStatus = 1 // SERVING

var servingNames = [...]string{"UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"}

// String prints the name in health.proto, or the number.
func (s servingStatus) String() string {
	if s >= 0 && int(s) < len(servingNames) {
		return servingNames[s]
	}
	return fmt.Sprintf("status %d", int32(s))
}

// The wire types of protocol buffers.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// encodeRequest returns a HealthCheckRequest: the service's name is field 1, left
// out when it is empty.
func encodeRequest(service string) []byte {
	if service == "" {
		return nil
	}
	b := binary.AppendUvarint([]byte{1<<3 | wireBytes}, uint64(len(service)))
	return append(b, service...)
}

var errMessage = errors.New("the answer is not a HealthCheckResponse")

// decodeResponse returns the status of a HealthCheckResponse, which is field 1:
// UNKNOWN if it is left out, the last one if there are several. Fields that are
// not known yet are skipped.
func decodeResponse(b []byte) (servingStatus, error) {
	var status servingStatus
	for len(b) > 0 {
		key, n := binary.Uvarint(b)
		if n <= 0 || key>>3 == 0 || key>>3 > 1<<29-1 {
			return 0, fmt.Errorf("%w: bad field", errMessage)
		}
		b = b[n:]
		size, err := 0, error(nil)
		switch field, wire := key>>3, key&7; {
		case wire == wireVarint:
			value, n := binary.Uvarint(b)
			if size = n; field == 1 && n > 0 {
				// As of any enumeration, the low 32 bits count.
				status = servingStatus(value)
			}
		case field == 1:
			err = fmt.Errorf("%w: the status has wire type %d", errMessage, wire)
		case wire == wireFixed64:
			size = 8
		case wire == wireFixed32:
			size = 4
		case wire == wireBytes:
			length, n := binary.Uvarint(b)
			if n > 0 && length <= uint64(len(b)-n) {
				size = n + int(length)
			}
		}
		if err != nil {
			return 0, err
		}
		if size <= 0 || size > len(b) {
			return 0, fmt.Errorf("%w: cut or of an unknown wire type", errMessage)
		}
		b = b[size:]
	}
	return status, nil
}
