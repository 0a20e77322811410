/*
 * server: a real server of the benchmarks. TCP over IPv4, Linux.
 *
 *   server [-w WORKERS] [-s MEAN[:SPREAD]] NAME answer|discard|source:PORT...
 *
 * answer   reads a request, waits the service time, sends 64 bytes that begin
 *          with NAME, a letter, and closes. WORKERS threads do so, one
 *          connection each at a time; the others wait in the listen queue. The
 *          service time, in milliseconds, is uniform from MEAN-SPREAD to
 *          MEAN+SPREAD.
 * discard  reads until the client closes.
 * source   writes until the client closes.
 *
 * The server closes first, so that no client has to keep its port. "ready" is
 * printed when all ports are open. The program ends with its standard input, so
 * that it never outlives the one that started it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	ANSWER_BYTES = 64,
	BULK_BYTES = 256 * 1024,
	BACKLOG = 4096,
	MAX_WORKERS = 1024,
	REQUEST_SECONDS = 10, /* limit for a client that sends nothing */
	STACK_BYTES = 64 * 1024,
};

static char name;
static int workers = 1;
static double mean, spread; /* milliseconds */

static void die(const char *what)
{
	fprintf(stderr, "server %c: %s: %s\n", name, what, strerror(errno));
	exit(1);
}

static int listen_on(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, BACKLOG) < 0)
		die("listen");
	return fd;
}

/* start runs a thread that nobody waits for. */
static void start(void *(*f)(void *), intptr_t arg)
{
	pthread_t t;
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	errno = pthread_create(&t, &attr, f, (void *)arg);
	if (errno)
		die("pthread_create");
	pthread_attr_destroy(&attr);
}

/* accept_one waits for a connection. */
static int accept_one(int listener)
{
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (fd >= 0)
			return fd;
		/* EAGAIN: the receive timeout is that of accept(), too. */
		if (errno != ECONNABORTED && errno != EINTR && errno != EAGAIN)
			die("accept");
	}
}

/* serve waits the service time. seed is the state of a xorshift generator. */
static void serve(uint64_t *seed)
{
	double ms = mean;
	struct timespec t;

	if (mean == 0)
		return;
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	ms += spread * ((double)(*seed >> 11) / (double)(1ull << 52) - 1);
	t.tv_sec = (time_t)(ms / 1e3);
	t.tv_nsec = (long)((ms - (double)t.tv_sec * 1e3) * 1e6);
	while (nanosleep(&t, &t) < 0 && errno == EINTR)
		;
}

static void *answer(void *arg)
{
	int listener = (int)(intptr_t)arg;
	uint64_t seed = ((uint64_t)pthread_self() >> 4) * 2654435761u | 1;
	char buf[4096], reply[ANSWER_BYTES];

	memset(reply, '.', sizeof reply);
	reply[0] = name;
	reply[sizeof reply - 1] = '\n';
	for (;;) {
		int fd = accept_one(listener);

		if (recv(fd, buf, sizeof buf, 0) > 0) {
			serve(&seed);
			/* A client that left is no fault of the server. */
			(void)send(fd, reply, sizeof reply, MSG_NOSIGNAL);
		}
		close(fd);
	}
	return NULL;
}

static void *discard_one(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char *buf = malloc(BULK_BYTES);

	while (buf && recv(fd, buf, BULK_BYTES, 0) > 0)
		;
	free(buf);
	close(fd);
	return NULL;
}

static void *source_one(void *arg)
{
	int fd = (int)(intptr_t)arg;
	char *buf = calloc(1, BULK_BYTES);

	while (buf && send(fd, buf, BULK_BYTES, MSG_NOSIGNAL) > 0)
		;
	free(buf);
	close(fd);
	return NULL;
}

static void *discard(void *arg)
{
	for (;;)
		start(discard_one, accept_one((int)(intptr_t)arg));
	return NULL;
}

static void *source(void *arg)
{
	for (;;)
		start(source_one, accept_one((int)(intptr_t)arg));
	return NULL;
}

static void usage(void)
{
	fprintf(stderr, "usage: server [-w WORKERS] [-s MEAN[:SPREAD]] NAME answer|discard|source:PORT...\n");
	exit(2);
}

/* answer_on opens a port whose connections come to accept() together with their
 * request, so that no worker waits for it. */
static void answer_on(int port)
{
	int fd = listen_on(port), seconds = REQUEST_SECONDS;
	struct timeval t = { .tv_sec = REQUEST_SECONDS };

	setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t); /* inherited */
	for (int i = 0; i < workers; i++)
		start(answer, fd);
}

int main(int argc, char **argv)
{
	char *rest, buf[64];
	int o;

	while ((o = getopt(argc, argv, "w:s:")) != -1) {
		switch (o) {
		case 'w': workers = atoi(optarg); break;
		case 's':
			mean = strtod(optarg, &rest);
			spread = *rest == ':' ? strtod(rest + 1, NULL) : 0;
			break;
		default: usage();
		}
	}
	if (argc - optind < 2 || strlen(argv[optind]) != 1 || workers < 1 || workers > MAX_WORKERS ||
	    !(mean >= 0 && mean <= 60000) || !(spread >= 0 && spread <= mean))
		usage();
	name = argv[optind][0];
	for (int i = optind + 1; i < argc; i++) {
		int port;

		if (sscanf(argv[i], "answer:%d", &port) == 1)
			answer_on(port);
		else if (sscanf(argv[i], "discard:%d", &port) == 1)
			start(discard, listen_on(port));
		else if (sscanf(argv[i], "source:%d", &port) == 1)
			start(source, listen_on(port));
		else
			usage();
	}
	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, buf, sizeof buf) > 0)
		;
	return 0;
}
