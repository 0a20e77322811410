package config

import "testing"

func TestQueueCount(t *testing.T) {
	for _, tt := range []struct{ queues, processors, want int }{
		{0, 1, 1}, {0, 2, 2}, {0, 4, 4}, {0, 64, 4}, {0, 0, 1}, {1, 64, 1}, {64, 2, 64},
	} {
		u := Userspace{Queues: tt.queues}
		if got := u.QueueCount(tt.processors); got != tt.want {
			t.Errorf("queues %d on %d processors: want %d, got %d", tt.queues, tt.processors, tt.want, got)
		}
	}
}
