/*
 * recording_guard.c - a first look at an untrusted file by a child process.
 *
 * HDF5 1.10 crashes and loops on damaged metadata (mostly in its global heap, where strings of variable
 * length lie), and nothing that a caller checks can prevent it.  So a child goes through the structure of
 * the file first; a file that it does not survive is refused.
 *
 * The child serves requests over a socket until one kills it or it is stopped.  Opening a file uses a
 * child of its own; fuzzing keeps one as long as it lives, because forking costs far more than looking.
 */
#include "harness/recording_rules.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

struct request {
	bool is_path; /* the bytes are a path with its final 0, else an image of a file */
	size_t nbytes;
	int64_t milliseconds;
};

static bool send_all(int fd, const void *bytes, size_t nbytes)
{
	const char *at = bytes;

	while (nbytes > 0) {
		ssize_t n = send(fd, at, nbytes, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		nbytes -= (size_t)n;
	}
	return true;
}

static bool receive_all(int fd, void *bytes, size_t nbytes)
{
	char *at = bytes;

	while (nbytes > 0) {
		ssize_t n = recv(fd, at, nbytes, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		at += n;
		nbytes -= (size_t)n;
	}
	return true;
}

/* ---- the child ------------------------------------------------------------------------------- */

/* Default reactions, no core file, nothing on stderr. */
static void prepare_child(void)
{
	static const int deadly[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF};
	const struct rlimit no_core = {0, 0};
	int null = open("/dev/null", O_WRONLY);

	for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
		signal(deadly[i], SIG_DFL);
	setrlimit(RLIMIT_CORE, &no_core);
	if (null >= 0)
		dup2(null, 2);
}

/* The time that the process may compute from now on; 0: any. */
static void limit_time(int64_t milliseconds)
{
	const struct itimerval limit = {
		.it_value = {milliseconds / 1000, milliseconds % 1000 * 1000},
	};

	setitimer(ITIMER_PROF, &limit, NULL);
}

static void serve(int fd, cpa_recording_look look)
{
	struct request request;

	while (receive_all(fd, &request, sizeof request)) {
		char *bytes = malloc(request.nbytes + 1);

		if (!bytes || !receive_all(fd, bytes, request.nbytes))
			_exit(1);
		limit_time(request.milliseconds);
		look(request.is_path ? bytes : NULL, bytes, request.nbytes);
		limit_time(0);
		free(bytes);
		if (!send_all(fd, "", 1))
			break;
	}
	_exit(0);
}

/* ---- the parent ------------------------------------------------------------------------------ */

enum cpa_status cpa_recording_guard_start(struct cpa_recording_guard *guard, cpa_recording_look look,
	struct cpa_error *error)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
		return cpa_fail(error, CPA_EXTERNAL, "no socket for looking at the file: %s",
			strerror(errno));
	guard->child = fork();
	if (guard->child < 0) {
		guard->child = 0;
		close(fds[0]);
		close(fds[1]);
		return cpa_fail(error, CPA_EXTERNAL, "no process for looking at the file: %s",
			strerror(errno));
	}
	if (guard->child == 0) {
		close(fds[0]);
		prepare_child();
		serve(fds[1], look);
	}
	close(fds[1]);
	guard->fd = fds[0];
	return CPA_OK;
}

int cpa_recording_guard_stop(struct cpa_recording_guard *guard)
{
	int status = 0;

	close(guard->fd);
	while (waitpid(guard->child, &status, 0) < 0 && errno == EINTR)
		;
	guard->child = 0;
	return status;
}

enum cpa_status cpa_recording_guard_ask(struct cpa_recording_guard *guard, const char *path,
	const void *image, size_t nbytes, struct cpa_error *error)
{
	/* Honest files take a hundredth of this. */
	const struct request request = {path != NULL, path ? strlen(path) + 1 : nbytes,
		(path ? 2000 : 300) + (int64_t)(nbytes >> 13)};
	int status;
	char answer;

	if (send_all(guard->fd, &request, sizeof request) &&
	    send_all(guard->fd, path ? path : image, request.nbytes) &&
	    receive_all(guard->fd, &answer, 1))
		return CPA_OK;
	status = cpa_recording_guard_stop(guard);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
		return cpa_fail(error, CPA_INVALID, "/: the HDF5 library loops on its metadata, which must "
			"be damaged; expected a file that h5dump can read");
	return cpa_fail(error, CPA_INVALID, "/: the HDF5 library crashes on its metadata (%s), which must be "
		"damaged; expected a file that h5dump can read",
		WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "abnormal end");
}
