/*
 * main.c - the command cpattn: signals, the standard streams, dispatch, the exit status.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "dist/dist.h"
#include "harness/commands.h"
#include "harness/output.h"

static void interrupted(int signal_number)
{
	cpa_output_interrupted();
	_exit(128 + signal_number);
}

/* An interrupt leaves no half-written file; a closed pipe is an error of write(), not a silent
 * death. */
static void set_signals(void)
{
	static const int deadly[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action, before;

	memset(&action, 0, sizeof action);
	sigemptyset(&action.sa_mask);
	action.sa_handler = interrupted;
	for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++) {
		/* What the caller chose to ignore (nohup) stays ignored. */
		if (sigaction(deadly[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
			sigaction(deadly[i], &action, NULL);
	}
	action.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &action, NULL);
}

/*
 * With a standard stream closed the next file that is opened would take its number and its
 * text.  The stand-in for stdout is open for reading only, so that what is written to it is
 * reported as lost.
 */
static void fill_standard_streams(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
			(void)!open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY);
}

/* Buffers of one configuration are freed and asked for again by the next: keep them, or each costs a page
 * fault a page.  Another libc decides for itself. */
static void keep_freed_memory(void)
{
#ifdef __GLIBC__
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

/*
 * Threads that have nothing to do sleep.  By default they spin, and on a machine that is shared (any CI
 * machine) a run then takes three times as long: the spinning thread keeps the working one from its
 * core.  The OpenMP library reads this before main(), so the command starts itself once more.
 */
static void let_threads_sleep(char **argv)
{
#ifdef _OPENMP
	if (argv[0] && argv[1] && strcmp(argv[1], "bench") == 0)
		return; /* what is timed has the machine for itself, and waking takes time */
	if (getenv("OMP_WAIT_POLICY") || getenv("GOMP_SPINCOUNT") || getenv("KMP_BLOCKTIME"))
		return; /* the user's choice, or the second start */
	if (setenv("OMP_WAIT_POLICY", "passive", 1) == 0)
		execv("/proc/self/exe", argv); /* where that fails it is only slower */
#else
	(void)argv;
#endif
}

static int dispatch(const struct cpa_options *options)
{
	switch (options->command) {
	case CPA_COMMAND_LIST:
		return cpa_cmd_list(options);
	case CPA_COMMAND_VERIFY:
		return cpa_cmd_verify(options);
	case CPA_COMMAND_CHECK:
	case CPA_COMMAND_DIAGNOSE:
		return cpa_cmd_check(options);
	case CPA_COMMAND_MERGE:
		return cpa_cmd_merge(options);
	case CPA_COMMAND_PROBE:
		return cpa_cmd_probe(options);
	case CPA_COMMAND_PLAN:
		return cpa_cmd_plan(options);
	case CPA_COMMAND_BENCH:
		return cpa_cmd_bench(options);
	case CPA_COMMAND_REPORT:
		return cpa_cmd_report(options);
	case CPA_COMMAND_HELP:
		return cpa_cmd_help(options->help_about);
	case CPA_COMMAND_VERSION:
		return cpa_cmd_version();
	case CPA_COMMAND_NONE:
		break;
	}
	return 2;
}

/* Every byte written so far has arrived, or status 2 and a sentence. */
static int close_stdout(int status)
{
	int code = 0;
	struct cpa_error error;

	errno = 0;
	if (ferror(stdout))
		code = EIO;
	if (fflush(stdout) != 0)
		code = errno;
	if (fclose(stdout) != 0 && !code)
		code = errno;
	if (!code)
		return status;
	if (cpa_output_lost_stdout())
		return 2;
	cpa_fail(&error, CPA_EXTERNAL, "cannot write to stdout: %s", strerror(code));
	return cpa_complain(&error);
}

int main(int argc, char **argv)
{
	struct cpa_options options;
	struct cpa_error error = { "" };
	int status;

	let_threads_sleep(argv);
	fill_standard_streams();
	set_signals();
	keep_freed_memory();
	if (cpa_options_parse(argc, argv, &options, &error) == CPA_OK)
		status = dispatch(&options);
	else
		status = cpa_complain(&error);
	cpa_mpi_stop();
	status = close_stdout(status);
	cpa_options_fini(&options);
	return status;
}
