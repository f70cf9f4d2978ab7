/*
 * test_directory.h - a directory of the test program's own, with one file in it: set-up and
 * tear-down of a group.  Include after cmocka.h.
 */
#ifndef CPA_TEST_DIRECTORY_H
#define CPA_TEST_DIRECTORY_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Long matrices take a part of their runs under a sanitizer, which looks at memory: that of one is like
 * that of the next. */
#ifdef __SANITIZE_ADDRESS__
enum { CPA_TEST_PART = 2 };
#else
enum { CPA_TEST_PART = 1 };
#endif

static char directory[] = "/tmp/cpattn-test-XXXXXX";
static char file_path[sizeof directory + 20];

static inline int make_directory(void **state)
{
	(void)state;
	if (!mkdtemp(directory))
		return -1;
	snprintf(file_path, sizeof file_path, "%s/run.h5", directory);
	return 0;
}

static inline int remove_directory(void **state)
{
	(void)state;
	unlink(file_path);
	return rmdir(directory);
}

#endif
