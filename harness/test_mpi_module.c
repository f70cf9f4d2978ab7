/*
 * test_mpi_module.c - the shared object that speaks MPI: where it is found, when it is loaded,
 * and what is said when it cannot be.
 */
#include "harness/test_shell.h"
#include "sim/test_mpi.h"

#include "dist/dist.h"

static void needs_module(void)
{
	if (strncmp(cpa_mpi_about(), "built without MPI", 17) == 0)
		skip();
	if (!cpa_mpi_usable())
		fail_msg("%s", cpa_mpi_about());
}

static void is_refused(const char *module, const char *why)
{
	assert_int_equal(
		run("CPATTN_MPI_MODULE=%s @ verify --comm mpi --problem S=30,H=3,D=8", module),
		2);
	assert_says(why);
	assert_int_equal(run("CPATTN_MPI_MODULE=%s @ list comms", module), 0);
	assert_says("cannot run here");
	/* Who needs no MPI does not notice. */
	assert_int_equal(run("CPATTN_MPI_MODULE=%s @ verify --problem S=30,H=3,D=8", module), 0);
}

static void a_module_that_is_none_is_refused(void **state)
{
	(void)state;
	needs_module();
	is_refused("#/nosuch.so", "nosuch.so: cannot open shared object file");
	assert_int_equal(run("echo words >#/text.so"), 0);
	is_refused("#/text.so", "text.so, which speaks MPI, cannot be used");
	is_refused("libm.so.6", "it is another kind of file");
}

/* Alone in a folder, the command finds nothing beside it. */
static void a_command_without_its_module_says_what_is_missing(void **state)
{
	(void)state;
	needs_module();
	assert_int_equal(run("mkdir -p #/away/bin && cp @ #/away/bin/cpattn"), 0);
	if (run("#/away/bin/cpattn list comms") == 0 && strstr(said, "mpirun -n N"))
		skip(); /* one is installed in the prefix */
	assert_int_equal(run("#/away/bin/cpattn verify --comm mpi --problem S=30,H=3,D=8"), 2);
	assert_says("cpattn_mpi.so, which speaks MPI, is neither beside the program nor in");
	assert_says("CPATTN_MPI_MODULE=FILE names another place");
	assert_int_equal(run("#/away/bin/cpattn verify --problem S=30,H=3,D=8"), 0);
}

static void a_module_is_found_beside_the_command_and_where_it_is_installed(void **state)
{
	static const char *const places[] = {"bin", "lib/cpattn"};

	(void)state;
	needs_module();
	for (int i = 0; i < 2; i++) {
		assert_int_equal(
			run("rm -rf #/moved && mkdir -p #/moved/bin #/moved/lib/cpattn"), 0);
		assert_int_equal(run("cp @ #/moved/bin/cpattn && cp $(dirname @)/cpattn_mpi.so "
				     "#/moved/%s",
					 places[i]),
			0);
		/* Through PATH, from another folder, and by a link from another. */
		assert_int_equal(run("cd / && PATH=#/moved/bin:$PATH cpattn list comms"), 0);
		assert_says("mpirun -n N");
		assert_int_equal(run("ln -sf #/moved/bin/cpattn #/link && #/link list comms"), 0);
		assert_says("mpirun -n N");
	}
}

/* Libraries of MPI take longer to load than all others. */
static void mpi_is_not_loaded_unless_asked_for(void **state)
{
	(void)state;
	needs_module();
	assert_int_equal(run("LD_DEBUG=files @ verify --problem S=30,H=3,D=8"), 0);
	assert_silent_on("libmpi");
	assert_int_equal(run("LD_DEBUG=files @ list comms"), 0);
	assert_says("libmpi");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_module_that_is_none_is_refused),
		cmocka_unit_test(a_command_without_its_module_says_what_is_missing),
		cmocka_unit_test(a_module_is_found_beside_the_command_and_where_it_is_installed),
		cmocka_unit_test(mpi_is_not_loaded_unless_asked_for),
	};

	if (!prepare())
		return 1;
	set_environment();
	return cmocka_run_group_tests(tests, NULL, clean);
}
