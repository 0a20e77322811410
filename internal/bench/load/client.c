/*
 * client: the load of the benchmarks. TCP over IPv4, Linux.
 *
 *   client [options] requests FROM TO:PORT
 *   client [options] down|up  FROM TO:PORT
 *
 * requests keeps a fixed number of connections under way. Each connects, sends a
 * request of 64 bytes, reads until the server closes, and closes. The time of a
 * request is from before connect() until the end of the answer. The first byte of
 * the answer names the server.
 *
 * down and up keep a fixed number of connections and read, or write, as fast as
 * they can.
 *
 * The source addresses and ports are chosen here, one after the other: addresses
 * from FROM up, and for each port all addresses. A tuple comes back only after
 * all others, so that nothing waits for a free port, and a balancer sees as many
 * different tuples as the caller wants and no more. With -n, -t is only how long
 * the caller expects it to take: half a minute later the program is killed.
 *
 * One line is printed, pairs of "name=value":
 *
 *   done      requests that were answered in the measured time
 *   failed    requests that were not
 *   bytes     bytes read or written
 *   seconds   the measured time
 *   busy      seconds that the processors of the machine were not idle in it
 *   mean p50 p95 p99 max   times of requests in microseconds
 *   server_X  requests that the server X answered
 *
 * busy is the number of processors times the time, less what /proc/stat says of
 * idle, waiting for devices and time stolen by other machines.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	REQUEST_BYTES = 64,
	MAX_CONNS = 4096,
	MAX_WORKERS = 16,
	MAX_SAMPLES = 1 << 22,
	CONN_TIMEOUT_SECONDS = 10,
	EXTRA_SECONDS = 30, /* after which a stuck run is killed */
	BULK_BYTES = 256 * 1024,
	BULK_MAX_CONNS = 64,
};

static struct {
	int conns, workers;
	uint64_t count;    /* requests to make; 0: as many as fit into the time */
	double warm, time; /* seconds */
	int addrs, low, high;
	struct sockaddr_in from, to;
} opt = {
	.conns = 64, .workers = 1, .time = 2, .addrs = 1, .low = 20000, .high = 59999,
};

static void die(const char *what)
{
	fprintf(stderr, "client: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void pause_for(double seconds)
{
	struct timespec t = { .tv_sec = (time_t)seconds };

	t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

/* idle returns the seconds that all processors did nothing since the boot. */
static double idle(void)
{
	/* user nice system idle iowait irq softirq steal */
	unsigned long long v[8];
	FILE *f = fopen("/proc/stat", "r");

	if (!f)
		die("/proc/stat");
	if (fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &v[0], &v[1], &v[2],
		   &v[3], &v[4], &v[5], &v[6], &v[7]) != 8) {
		fprintf(stderr, "client: /proc/stat: unknown form\n");
		exit(1);
	}
	fclose(f);
	return (double)(v[3] + v[4] + v[7]) / (double)sysconf(_SC_CLK_TCK);
}

/* window is the measured time. */
struct window {
	uint64_t begin, end;
	double idle_begin, idle_end;
};

static void window_open(struct window *w)
{
	w->idle_begin = idle();
	w->begin = now();
}

static void window_close(struct window *w)
{
	w->end = now();
	w->idle_end = idle();
}

static void window_print(const struct window *w)
{
	double s = (double)(w->end - w->begin) / 1e9;
	double busy = (double)sysconf(_SC_NPROCESSORS_ONLN) * s - (w->idle_end - w->idle_begin);

	printf(" seconds=%.6f busy=%.3f", s, busy > 0 ? busy : 0);
}

static _Atomic uint64_t sources;

/* next_source returns the next source address and port. */
static struct sockaddr_in next_source(void)
{
	struct sockaddr_in a = opt.from;
	uint64_t i = sources++;

	a.sin_addr.s_addr = htonl(ntohl(a.sin_addr.s_addr) + (uint32_t)(i % (uint64_t)opt.addrs));
	i /= (uint64_t)opt.addrs;
	a.sin_port = htons((uint16_t)((uint64_t)opt.low + i % (uint64_t)(opt.high - opt.low + 1)));
	return a;
}

/* dial begins a connection, from the next source that nothing uses. */
static int dial(int flags)
{
	for (int tries = 0; tries < 1000; tries++) {
		struct sockaddr_in from = next_source();
		int on = 1;
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);

		if (fd < 0)
			die("socket");
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
		if (bind(fd, (struct sockaddr *)&from, sizeof from) == 0 &&
		    (connect(fd, (struct sockaddr *)&opt.to, sizeof opt.to) == 0 || errno == EINPROGRESS))
			return fd;
		if (errno != EADDRINUSE && errno != EADDRNOTAVAIL) {
			close(fd);
			return -1;
		}
		close(fd);
	}
	errno = EADDRNOTAVAIL;
	return -1;
}

/* ---- requests ---- */

enum phase { WARMING, MEASURING, ENDING };

static _Atomic int phase;
static _Atomic uint64_t begun; /* requests begun in the measured time */

struct conn {
	int fd; /* -1: none */
	bool sent;
	unsigned char server; /* the answer's first byte; 0: none yet */
	uint64_t begin;
};

/* worker is a thread with a share of the connections. */
struct worker {
	pthread_t thread;
	struct conn *conns;
	int size, alive, poll;
	uint64_t done, failed, bytes, servers[256];
	uint32_t *samples; /* tenths of a microsecond */
};

static void fail(struct worker *w, const char *why)
{
	if (w->failed++ == 0)
		fprintf(stderr, "client: %s\n", why);
}

/* conn_start begins a request, unless there have been enough. */
static void conn_start(struct worker *w, struct conn *c)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c };

	c->fd = -1;
	if (phase == ENDING || (phase == MEASURING && opt.count && begun++ >= opt.count))
		return;
	c->sent = false;
	c->server = 0;
	c->begin = now();
	c->fd = dial(SOCK_NONBLOCK);
	if (c->fd < 0) {
		fail(w, strerror(errno));
		return;
	}
	w->alive++;
	if (epoll_ctl(w->poll, EPOLL_CTL_ADD, c->fd, &e) < 0)
		die("epoll_ctl");
}

/* conn_end counts a request and begins the next in its place. Failures count
 * also while warming up: there must be none. */
static void conn_end(struct worker *w, struct conn *c, const char *why)
{
	uint64_t t = (now() - c->begin) / 100;

	close(c->fd);
	w->alive--;
	if (why) {
		fail(w, why);
	} else if ((phase == MEASURING || (phase == ENDING && opt.count)) && w->done < MAX_SAMPLES) {
		w->samples[w->done++] = t > UINT32_MAX ? UINT32_MAX : (uint32_t)t;
		w->servers[c->server]++;
	}
	conn_start(w, c);
}

static void conn_event(struct worker *w, struct conn *c, uint32_t events)
{
	static const char request[REQUEST_BYTES] = "please\n";
	char answer[4096];

	if (!c->sent) {
		if (send(c->fd, request, sizeof request, MSG_NOSIGNAL) != sizeof request) {
			conn_end(w, c, strerror(errno));
			return;
		}
		c->sent = true;
	}
	if (!(events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP)))
		return;
	for (;;) {
		ssize_t n = recv(c->fd, answer, sizeof answer, 0);

		if (n > 0) {
			if (!c->server)
				c->server = (unsigned char)answer[0];
			w->bytes += (uint64_t)n;
			continue;
		}
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		conn_end(w, c, n < 0 ? strerror(errno) : c->server ? NULL : "empty answer");
		return;
	}
}

/* conns_expire gives up requests that take too long. */
static void conns_expire(struct worker *w, uint64_t t)
{
	const uint64_t timeout = CONN_TIMEOUT_SECONDS * 1000000000ull;

	for (int i = 0; i < w->size; i++)
		if (w->conns[i].fd >= 0 && w->conns[i].begin + timeout < t)
			conn_end(w, &w->conns[i], "no answer");
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	struct epoll_event events[64];
	uint64_t expired = now();

	for (int i = 0; i < w->size; i++)
		conn_start(w, &w->conns[i]);
	while (w->alive > 0) {
		int n = epoll_wait(w->poll, events, 64, 100);
		uint64_t t = now();

		for (int i = 0; i < n; i++)
			conn_event(w, events[i].data.ptr, events[i].events);
		if (t - expired > 1000000000u) {
			conns_expire(w, t);
			expired = t;
		}
	}
	return NULL;
}

static void worker_start(struct worker *w, int size)
{
	w->size = size;
	w->conns = calloc((size_t)size, sizeof w->conns[0]);
	w->samples = malloc(MAX_SAMPLES * sizeof w->samples[0]);
	w->poll = epoll_create1(EPOLL_CLOEXEC);
	if (!w->conns || !w->samples || w->poll < 0)
		die("start");
	errno = pthread_create(&w->thread, NULL, worker_run, w);
	if (errno)
		die("pthread_create");
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* quantile returns the smallest sample that at least a share q does not exceed,
 * in microseconds. */
static double quantile(const struct worker *w, double q)
{
	uint64_t i = (uint64_t)(q * (double)w->done + 0.999999);

	return w->done ? (double)w->samples[i > 0 ? i - 1 : 0] / 10 : 0;
}

/* merge adds what a worker counted. */
static void merge(struct worker *to, const struct worker *w)
{
	to->samples = realloc(to->samples, (to->done + w->done + 1) * sizeof to->samples[0]);
	if (!to->samples)
		die("memory");
	memcpy(to->samples + to->done, w->samples, w->done * sizeof w->samples[0]);
	to->done += w->done;
	to->failed += w->failed;
	to->bytes += w->bytes;
	for (int i = 0; i < 256; i++)
		to->servers[i] += w->servers[i];
}

static void requests_print(struct worker *sum, const struct window *window)
{
	double us = 0;

	qsort(sum->samples, sum->done, sizeof sum->samples[0], compare);
	for (uint64_t i = 0; i < sum->done; i++)
		us += (double)sum->samples[i] / 10;
	printf("done=%llu failed=%llu bytes=%llu", (unsigned long long)sum->done,
	       (unsigned long long)sum->failed, (unsigned long long)sum->bytes);
	window_print(window);
	printf(" mean=%.1f p50=%.1f p95=%.1f p99=%.1f max=%.1f", sum->done ? us / (double)sum->done : 0,
	       quantile(sum, 0.5), quantile(sum, 0.95), quantile(sum, 0.99), quantile(sum, 1));
	for (int i = 0; i < 256; i++)
		if (sum->servers[i])
			printf(" server_%c=%llu", i, (unsigned long long)sum->servers[i]);
	printf("\n");
}

static void requests(void)
{
	struct worker workers[MAX_WORKERS] = { 0 }, sum = { 0 };
	struct window window;

	alarm((unsigned)(opt.warm + opt.time) + EXTRA_SECONDS);
	if (opt.warm > 0) {
		phase = WARMING;
	} else {
		phase = MEASURING;
		window_open(&window);
	}
	for (int i = 0; i < opt.workers; i++)
		worker_start(&workers[i], opt.conns / opt.workers + (i < opt.conns % opt.workers));
	if (opt.warm > 0) {
		pause_for(opt.warm);
		window_open(&window);
		phase = MEASURING;
	}
	if (opt.count) {
		/* They end by themselves. */
		for (int i = 0; i < opt.workers; i++)
			pthread_join(workers[i].thread, NULL);
		window_close(&window);
	} else {
		pause_for(opt.time);
		phase = ENDING;
		window_close(&window);
		for (int i = 0; i < opt.workers; i++)
			pthread_join(workers[i].thread, NULL);
	}
	for (int i = 0; i < opt.workers; i++)
		merge(&sum, &workers[i]);
	requests_print(&sum, &window);
}

/* ---- bulk ---- */

static _Atomic uint64_t bulk_bytes[BULK_MAX_CONNS];
static _Atomic uint64_t bulk_failed;
static atomic_bool bulk_end;

struct bulk {
	int fd;
	bool up;
	_Atomic uint64_t *bytes;
};

static void *bulk_run(void *arg)
{
	struct bulk *b = arg;
	char *buf = calloc(1, BULK_BYTES);

	if (!buf)
		die("memory");
	while (!bulk_end) {
		ssize_t n = b->up ? send(b->fd, buf, BULK_BYTES, MSG_NOSIGNAL)
				  : recv(b->fd, buf, BULK_BYTES, 0);
		if (n <= 0) {
			if (!bulk_end && bulk_failed++ == 0)
				fprintf(stderr, "client: bulk: %s\n", n ? strerror(errno) : "closed");
			break;
		}
		*b->bytes += (uint64_t)n;
	}
	free(buf);
	return NULL;
}

static uint64_t bulk_sum(void)
{
	uint64_t sum = 0;

	for (int i = 0; i < opt.conns; i++)
		sum += bulk_bytes[i];
	return sum;
}

static void bulk(bool up)
{
	struct bulk b[BULK_MAX_CONNS];
	pthread_t threads[BULK_MAX_CONNS];
	struct timeval timeout = { .tv_sec = CONN_TIMEOUT_SECONDS };
	struct window w;
	uint64_t before;

	for (int i = 0; i < opt.conns; i++) {
		b[i] = (struct bulk){ .fd = dial(0), .up = up, .bytes = &bulk_bytes[i] };
		if (b[i].fd < 0)
			die("connect");
		setsockopt(b[i].fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
		setsockopt(b[i].fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
		errno = pthread_create(&threads[i], NULL, bulk_run, &b[i]);
		if (errno)
			die("pthread_create");
	}
	pause_for(opt.warm);
	window_open(&w);
	before = bulk_sum();
	pause_for(opt.time);
	before = bulk_sum() - before;
	window_close(&w);
	bulk_end = true;
	for (int i = 0; i < opt.conns; i++) {
		shutdown(b[i].fd, SHUT_RDWR);
		pthread_join(threads[i], NULL);
		close(b[i].fd);
	}
	printf("failed=%llu bytes=%llu", (unsigned long long)bulk_failed, (unsigned long long)before);
	window_print(&w);
	printf("\n");
}

/* ---- command line ---- */

static void usage(void)
{
	fprintf(stderr,
		"usage: client [-c CONNECTIONS] [-j THREADS] [-n REQUESTS] [-w WARM-UP] [-t SECONDS]\n"
		"              [-a ADDRESSES] [-l LOW-PORT] [-h HIGH-PORT] requests|down|up FROM TO:PORT\n");
	exit(2);
}

static void address(struct sockaddr_in *a, char *text)
{
	char *colon = strchr(text, ':');

	if (colon) {
		*colon = 0;
		a->sin_port = htons((uint16_t)atoi(colon + 1));
	}
	a->sin_family = AF_INET;
	if (inet_pton(AF_INET, text, &a->sin_addr) != 1)
		usage();
}

int main(int argc, char **argv)
{
	int o;

	while ((o = getopt(argc, argv, "c:j:n:w:t:a:l:h:")) != -1) {
		switch (o) {
		case 'c': opt.conns = atoi(optarg); break;
		case 'j': opt.workers = atoi(optarg); break;
		case 'n': opt.count = strtoull(optarg, NULL, 10); break;
		case 'w': opt.warm = atof(optarg); break;
		case 't': opt.time = atof(optarg); break;
		case 'a': opt.addrs = atoi(optarg); break;
		case 'l': opt.low = atoi(optarg); break;
		case 'h': opt.high = atoi(optarg); break;
		default: usage();
		}
	}
	if (argc - optind != 3 || opt.conns < 1 || opt.conns > MAX_CONNS ||
	    opt.workers < 1 || opt.workers > MAX_WORKERS || opt.workers > opt.conns ||
	    opt.count > MAX_SAMPLES ||
	    !(opt.warm >= 0 && opt.warm <= 600) || !(opt.time > 0 && opt.time <= 600) ||
	    opt.addrs < 1 || opt.low < 1 || opt.high > 65535 || opt.low > opt.high)
		usage();
	address(&opt.from, argv[optind + 1]);
	address(&opt.to, argv[optind + 2]);
	/* Somewhere else than the run before, whose last tuples may still close. */
	sources = now() / 1000;
	if (strcmp(argv[optind], "requests") == 0) {
		requests();
	} else if (opt.conns <= BULK_MAX_CONNS && strcmp(argv[optind], "down") == 0) {
		bulk(false);
	} else if (opt.conns <= BULK_MAX_CONNS && strcmp(argv[optind], "up") == 0) {
		bulk(true);
	} else {
		usage();
	}
	return 0;
}
