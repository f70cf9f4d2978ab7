# cpattn: one Makefile for everything.  `make help` lists targets and options.
#
# Sources are found by wildcard, headers by the compiler, and what a machine has by harness/config.sh,
# which writes $(BUILD)/config.mk.  That file is included below; make writes it first and then starts
# over, so that `make deps verify` works on a machine that has nothing but make.

VERSION := 0.1.0
SOVERSION := 0

MODE ?= release
PREFIX ?= /usr/local
DESTDIR ?=
BUILD ?= build
WERROR ?= 0
V ?= 0
ifeq ($(origin CC),default)
CC := gcc
endif
FUZZ_CC ?= clang

# auto takes what it finds, 1 stops if it is missing, 0 does not look.
OPENMP ?= auto
HDF5 ?= auto
CJSON ?= auto
MPI ?= auto
CUDA ?= auto
NCCL ?= auto
CUDNN ?= auto
SIMGRID ?= auto

# Of test-record.
PYTHON ?= python3
TORCH ?= auto

ALL_MODES := release debug asan ubsan tsan fuzz
ifeq ($(filter $(ALL_MODES),$(MODE)),)
$(error MODE=$(MODE): expected one of $(ALL_MODES))
endif

.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules
# As many jobs as there are cores; -j1 on the command line still means one.  Not beside `clean`, which
# must end before anything else begins.
ifeq ($(MAKELEVEL)$(filter clean,$(MAKECMDGOALS)),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1)
endif
all:

# ---- what this machine has -----------------------------------------------------------------------

GOALS := $(or $(MAKECMDGOALS),all)
CONFIG := $(BUILD)/config.mk
PROBED := CC OPENMP HDF5 CJSON MPI CUDA NCCL CUDNN SIMGRID
OPTIONS := $(strip $(foreach name,$(PROBED),$(name)=$($(name))))

ifneq ($(filter-out deps clean help uninstall,$(GOALS)),)
include $(CONFIG)
# Written again when an option changed, and while something is missing that may have been installed since.
ifneq ($(strip $(CONFIG_OPTIONS)),$(OPTIONS))
$(CONFIG): FORCE
else ifneq ($(strip $(CONFIG_MISSING)),)
$(CONFIG): FORCE
endif
endif

$(CONFIG): harness/config.sh $(if $(filter deps,$(GOALS)),$(BUILD)/deps.stamp)
	@$(foreach name,$(PROBED),$(name)='$($(name))') CONFIG_OPTIONS='$(OPTIONS)' sh harness/config.sh $@

# The script decides each time whether something is missing.  The stamp moves only when the packages of
# the machine did, so that the machine is not looked at again for nothing.
$(BUILD)/deps.stamp: FORCE
	@mkdir -p $(@D)
	@sh harness/deps.sh
	@if [ ! $@ -nt /var/lib/dpkg/status ]; then touch $@; fi

.PHONY: FORCE
FORCE:

# ---- sources -------------------------------------------------------------------------------------

LIBRARY_ROOMS := ref kernels dist sim
APART := test_% fuzz_% bench_% example_%
stems = $(foreach file,$(wildcard $(1)),$(basename $(file)))
plain = $(foreach stem,$(1),$(if $(filter $(APART),$(notdir $(stem))),,$(stem)))

# What speaks MPI is a shared object of its own, which the library loads when it is asked for.
MODULE := dist/comm_mpi
LIBRARY := $(filter-out $(MODULE),$(call plain,$(call stems,$(LIBRARY_ROOMS:%=%/*.c))))
COMMAND := $(filter-out harness/main,$(call plain,$(call stems,harness/*.c)))
# Without HDF5 or cJSON there is nothing to test in the reader of recordings or of models.
LEFT_OUT := $(if $(filter 0,$(HAVE_HDF5)),harness/test_recording% harness/fuzz_recording) \
	$(if $(filter 0,$(HAVE_CJSON)),harness/test_model% harness/fuzz_model \
	harness/test_report% harness/fuzz_report)
TESTS := $(filter-out $(LEFT_OUT),$(call stems,$(LIBRARY_ROOMS:%=%/test_*.c) harness/test_*.c))
FUZZERS := $(filter-out harness/fuzz_driver $(LEFT_OUT),$(call stems,harness/fuzz_*.c))
BENCHES := $(call stems,harness/bench_*.c)
EVERYTHING := $(LIBRARY) $(MODULE) $(COMMAND) harness/main harness/fuzz_driver $(TESTS) $(FUZZERS) $(BENCHES)
PUBLIC_HEADERS := ref/ref.h kernels/kernels.h dist/schedule.h dist/dist.h sim/sim.h
MODELS := $(wildcard data/models/*.json)
PUBLISHED := $(wildcard data/published/*)
PLOTS := $(wildcard reports/*.gp)
RECORDINGS := $(wildcard data/recordings/*.h5 data/recordings/peers/*.h5)

# ---- flags ---------------------------------------------------------------------------------------

COMMIT := $(shell git describe --always --dirty --abbrev=12 --exclude='*' 2>/dev/null || echo unknown)
DATADIR := $(PREFIX)/share/cpattn

BASE := -std=c11 -D_POSIX_C_SOURCE=200809L -I. -g -fPIC -fno-semantic-interposition -Wall -Wextra -Wshadow \
	-Wvla -Wstrict-prototypes -Wmissing-prototypes $(if $(filter 1,$(WERROR)),-Werror)

# A merge with fused multiply-add is not symmetric, and the reference is to be the same everywhere;
# kernels may fuse.
ROOM_ref := -O2 -ffp-contract=off
ROOM_dist := -O2 -ffp-contract=off
ROOM_sim := -O2 -ffp-contract=off
ROOM_harness := -O2 -ffp-contract=off
ROOM_kernels := -O3 -ffp-contract=fast

# Flags of one file.  They are variables with the name of the file, because target-specific variables
# would reach what the file depends on too.
CFLAGS_ref/attention := -O3
CFLAGS_kernels/merge := -ffp-contract=off
CFLAGS_kernels/move_generic := -ffp-contract=off
CFLAGS_kernels/move_avx2 := -ffp-contract=off
CFLAGS_kernels/move_avx512 := -ffp-contract=off
# Scores must be rounded before their maximum is taken from them.
CFLAGS_kernels/attend_avx512_bf16 := -ffp-contract=off
CFLAGS_kernels/attend_amx := -ffp-contract=off
CFLAGS_kernels/attend_amx_software := -ffp-contract=off
CFLAGS_harness/recording_hdf5 := -DCPA_HAVE_HDF5=$(HAVE_HDF5) $(HDF5_CFLAGS)
CFLAGS_harness/recording_none := -DCPA_HAVE_HDF5=$(HAVE_HDF5)
CFLAGS_dist/comm_mpi := -DCPA_VERSION='"$(VERSION)"' $(MPI_CFLAGS)
CFLAGS_dist/comm_load := -DCPA_HAVE_MPI=$(HAVE_MPI) -DCPA_VERSION='"$(VERSION)"' -DCPA_LIBDIR='"$(PREFIX)/lib/cpattn"'
CFLAGS_harness/fields := -DCPA_HAVE_CJSON=$(HAVE_CJSON) $(CJSON_CFLAGS)
CFLAGS_harness/model_json := -DCPA_HAVE_CJSON=$(HAVE_CJSON)
CFLAGS_harness/report_read := -DCPA_HAVE_CJSON=$(HAVE_CJSON)
CFLAGS_harness/report := -DCPA_DATADIR='"$(DATADIR)"'
CFLAGS_harness/model_file := -DCPA_DATADIR='"$(DATADIR)"'
ABOUT := -DCPA_VERSION='"$(VERSION)"' -DCPA_COMMIT='"$(COMMIT)"' -DCPA_FEATURES='"$(FEATURES)"' \
	-DCPA_DATADIR='"$(DATADIR)"'
CFLAGS_harness/main := $(ABOUT)
CFLAGS_harness/help := $(ABOUT)
CFLAGS_harness/cmd_list := $(ABOUT)

# Flags of a mode come late, so that they overrule those above.  ThreadSanitizer does not understand the
# locks of libgomp, and clang may come without an OpenMP library, so tsan and fuzz do without.
MODE_release :=
MODE_debug := -O0
MODE_asan := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
MODE_ubsan := -O1 -fsanitize=undefined -fno-sanitize-recover=all
MODE_tsan := -O1 -fsanitize=thread
MODE_fuzz := -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all
OMP := $(OPENMP_CFLAGS)
omp = $(if $(filter tsan fuzz,$(1)),,$(OMP))
openmp_room = $(if $(filter kernels harness,$(firstword $(subst /, ,$(2)))),$(or $(call omp,$(1)),-Wno-unknown-pragmas))
compiler = $(if $(filter fuzz,$(1)),$(FUZZ_CC),$(CC))

# compile(mode, stem) and link(mode): the command lines, less the names of the files.
compile = $(strip $(compiler) $(BASE) $(ROOM_$(firstword $(subst /, ,$(2)))) $(openmp_room) $(CFLAGS_$(2)) \
	$(MODE_$(1)) $(CPPFLAGS) $(CFLAGS))
link = $(strip $(compiler) $(MODE_$(1)) $(omp) $(LDFLAGS))
LIBRARY_LIBS := -lm -ldl
LIBS := $(if $(filter 1,$(HAVE_HDF5)),$(HDF5_LIBS)) $(if $(filter 1,$(HAVE_CJSON)),$(CJSON_LIBS)) $(LIBRARY_LIBS)

# ---- objects, libraries, programs of one mode ------------------------------------------------------

ifneq ($(V),1)
quietly := @
say = @echo "  $(1) $@"
endif
quote = '$(subst ','\'',$(1))'
# The command that made a file stands beside it in FILE.cmd; a file whose command has changed is made again.
record = printf '%s\n' $(call quote,$(1)) >$@.cmd
differs = $(or $(filter-out $(1),$(2)),$(filter-out $(2),$(1)))
stale = $(if $(call differs,$(file <$(1).cmd),$(2)),$(eval $(1): FORCE))

# mode_rules(mode)
define mode_rules
$(BUILD)/$(1)/%.o: %.c
	$$(call say,CC  )
	@mkdir -p $$(@D)
	$$(quietly)$$(call compile,$(1),$$*) -MMD -MP -c -o $$@ $$< && $$(call record,$$(call compile,$(1),$$*))

$(BUILD)/$(1)/libcpattn.a: $(LIBRARY:%=$(BUILD)/$(1)/%.o)
$(BUILD)/$(1)/harness.a: $(COMMAND:%=$(BUILD)/$(1)/%.o)
$(BUILD)/$(1)/libcpattn.a $(BUILD)/$(1)/harness.a:
	$$(call say,AR  )
	$$(quietly)rm -f $$@ && $$(AR) rcs $$@ $$(filter %.o,$$^) && $$(call record,$$(call members,$$@))

$(BUILD)/$(1)/libcpattn.so.$(SOVERSION): $(LIBRARY:%=$(BUILD)/$(1)/%.o) harness/libcpattn.map
	$$(call say,LD  )
	$$(quietly)$$(call link,$(1)) -shared -Wl,-soname,$$(@F) -Wl,--version-script=harness/libcpattn.map \
		-o $$@ $$(filter %.o,$$^) $(LIBRARY_LIBS) && $$(call record,$$(call members,$$@))

$(BUILD)/$(1)/cpattn_mpi.so: $(BUILD)/$(1)/$(MODULE).o $(BUILD)/$(1)/libcpattn.a harness/cpattn_mpi.map
	$$(call say,LD  )
	$$(quietly)$$(call link,$(1)) -shared -Wl,--version-script=harness/cpattn_mpi.map -o $$@ \
		$(BUILD)/$(1)/$(MODULE).o $(BUILD)/$(1)/libcpattn.a $(MPI_LIBS) && $$(call record,$$(call link,$(1)) $(MPI_LIBS))

$(BUILD)/$(1)/cpattn: $(BUILD)/$(1)/harness/main.o
$(if $(filter 1,$(HAVE_MPI)),$(BUILD)/$(1)/cpattn $(TESTS:%=$(BUILD)/$(1)/%) $(BENCHES:harness/%=$(BUILD)/$(1)/%): \
	| $(BUILD)/$(1)/cpattn_mpi.so)
$(foreach stem,$(FUZZERS) $(BENCHES),
$(BUILD)/$(1)/$(notdir $(stem)): $(BUILD)/$(1)/$(stem).o)
$(foreach stem,$(TESTS),
$(BUILD)/$(1)/$(stem): $(BUILD)/$(1)/$(stem).o)
$(if $(filter fuzz,$(1))$(if $(FUZZERS),,none),,$(FUZZERS:harness/%=$(BUILD)/$(1)/%): $(BUILD)/$(1)/harness/fuzz_driver.o)

$(call programs,$(1)): $(BUILD)/$(1)/harness.a $(BUILD)/$(1)/libcpattn.a
	$$(call say,LD  )
	$$(quietly)$$(call link,$(1)) $$(call fuzzer_link,$$@) -o $$@ $$(filter %.o,$$^) \
		$(BUILD)/$(1)/harness.a $(BUILD)/$(1)/libcpattn.a \
		$$(if $$(filter test_%,$$(@F)),-lcmocka) $$(LIBS) && $$(call record,$$(call link,$(1)) $$(LIBS))
endef
fuzzer_link = $(if $(filter $(BUILD)/fuzz/fuzz_%,$(1)),-fsanitize=fuzzer)
programs = $(BUILD)/$(1)/cpattn $(TESTS:%=$(BUILD)/$(1)/%) $(FUZZERS:harness/%=$(BUILD)/$(1)/%) \
	$(BENCHES:harness/%=$(BUILD)/$(1)/%)

# `make test` tests the release build and, where the mode is release, a build with sanitizers too.
TEST_MODES := $(MODE) $(if $(filter release,$(MODE)),asan)
USED_MODES := $(MODE) $(if $(filter test run/%,$(GOALS)),$(filter-out $(MODE),$(TEST_MODES)))
$(foreach mode,$(USED_MODES),$(eval $(call mode_rules,$(mode))))
$(foreach mode,$(USED_MODES),$(foreach stem,$(EVERYTHING),\
	$(call stale,$(BUILD)/$(mode)/$(stem).o,$(call compile,$(mode),$(stem)))))
members = $(if $(filter %/harness.a,$(1)),$(COMMAND),$(LIBRARY))
$(foreach mode,$(USED_MODES),$(foreach library,libcpattn.a libcpattn.so.$(SOVERSION) harness.a,\
	$(call stale,$(BUILD)/$(mode)/$(library),$(call members,$(BUILD)/$(mode)/$(library)))))
$(foreach mode,$(USED_MODES),\
	$(call stale,$(BUILD)/$(mode)/cpattn_mpi.so,$(call link,$(mode)) $(MPI_LIBS)))
$(foreach mode,$(USED_MODES),$(foreach program,$(call programs,$(mode)),\
	$(call stale,$(program),$(call link,$(mode)) $(LIBS))))
-include $(foreach mode,$(USED_MODES),$(EVERYTHING:%=$(BUILD)/$(mode)/%.d))

B := $(BUILD)/$(MODE)

# ---- what people type ----------------------------------------------------------------------------

.PHONY: all deps verify test check check-faults bench bench-verify bench-kernels bench-copies compare install uninstall clean help

SHARED := $(if $(filter release debug,$(MODE)),$(B)/libcpattn.so.$(SOVERSION))
ifeq ($(MODE),fuzz)
all: $(FUZZERS:harness/%=$(B)/%)
else
all: $(B)/cpattn $(B)/libcpattn.a $(SHARED)
endif

deps: $(BUILD)/deps.stamp
	@:

ifeq ($(HAVE_HDF5),0)
needs_hdf5 = @echo "make $@ reads recordings, and this build has no HDF5: run make deps, or leave out HDF5=0"; false
endif

verify: $(B)/cpattn
	$(needs_hdf5)
	$(B)/cpattn verify data/recordings/*.h5 data/recordings/peers/*.h5

RANDOM_PROBLEMS ?= 100000
FAULT_TRIALS ?= 4

# Every recording, on all worlds up to 8 and on 12 and 16, in all four dtypes, with every rotation; then
# random problems, and every fault.
check: $(B)/cpattn $(B)/bench_faults
	$(needs_hdf5)
	@status=0; for dtype in fp64 fp32 bf16 fp16; do \
		set -- $(B)/cpattn verify --ranks 1-8,12,16 --rotate all --dtype $$dtype \
			data/recordings/*.h5 data/recordings/peers/*.h5; \
		echo "$$*"; "$$@" || status=1; \
	done; \
	set -- $(B)/cpattn verify --random $(RANDOM_PROBLEMS); echo "$$*"; "$$@" || status=1; \
	$(MAKE) -s check-faults || status=1; \
	exit $$status

# Every fault, planted in random problems: seen by verify, found by check, named by diagnose?
check-faults: $(B)/bench_faults $(B)/cpattn
	$(needs_hdf5)
	@status=0; OMP_WAIT_POLICY=passive $(B)/bench_faults --json $(B)/faults.json $(FAULT_TRIALS) || status=1; \
	$(B)/cpattn report $(B)/faults.json --out $(B)/faults && \
	echo "as a page: $(B)/faults/index.html"; exit $$status

bench-verify: $(B)/bench_verify $(B)/cpattn
	@OMP_WAIT_POLICY=passive $(B)/bench_verify $(B)/cpattn

bench-copies: $(B)/bench_copies
	@for set in avx512 avx2 generic; do \
		if CPATTN_CPU=$$set $(B)/bench_copies none 2>/dev/null; then \
			CPATTN_CPU=$$set OMP_WAIT_POLICY=passive $(B)/bench_copies || exit 1; \
		else echo "# $$set cannot run here"; fi; \
	done

# Containers are often root, which Open MPI refuses unless told.
AS_ROOT = $(if $(filter 0,$(shell id -u)),OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)

# The rows that this machine can tell: how fast, beside its own limits.
bench: $(B)/bench_targets $(B)/cpattn
	@$(AS_ROOT) $(B)/bench_targets $(B)/cpattn $(ROWS)
	@if [ -e $(COMPARE)/ready ]; then $(MAKE) --no-print-directory compare; else \
		echo "# rows beside PyTorch: run make compare once, which sets it up in $(COMPARE)"; fi

# Beside PyTorch, in an environment of its own.  PIP_TORCH says what pip installs: on Linux plain torch brings
# several GB for GPUs; PIP_TORCH='torch --index-url https://download.pytorch.org/whl/cpu' does without.
COMPARE := $(BUILD)/compare-venv
PIP_TORCH ?= torch
COMPARE_ROUNDS ?= 12
compare: $(B)/compare_attend.so $(B)/cpattn $(COMPARE)/ready
	$(AS_ROOT) $(COMPARE)/bin/python data/compare.py --library $(B)/compare_attend.so \
		$(if $(filter 1,$(HAVE_MPI)),--cpattn $(B)/cpattn) --rounds $(COMPARE_ROUNDS) \
		--json $(B)/compare.json

$(COMPARE)/ready:
	python3 -m venv $(COMPARE)
	$(COMPARE)/bin/pip install --quiet $(PIP_TORCH)
	$(COMPARE)/bin/pip install --quiet numpy diffusers
	touch $@

$(B)/compare_attend.so: data/compare_attend.c $(B)/libcpattn.a
	$(call say,LD  )
	$(quietly)$(call compile,$(MODE),data/compare_attend) $(call omp,$(MODE)) -shared -o $@ $^ $(LIBRARY_LIBS)

# One set of instructions after the other; one that the machine lacks says so.  Two threads must not
# meet on one core.
bench-kernels: $(B)/bench_kernels
	@OMP_WAIT_POLICY=passive OMP_PROC_BIND=true $(B)/bench_kernels bf16
	@for set in avx512 avx2 generic; do \
		CPATTN_CPU=$$set OMP_WAIT_POLICY=passive OMP_PROC_BIND=true $(B)/bench_kernels; done

# ---- tests ---------------------------------------------------------------------------------------

# Each run prints one line and leaves its count in NAME.result and its words in NAME.log.  A failure
# does not stop the others; `test` adds up and fails at the end.
run_test = CPATTN_DATA='$(CURDIR)/data' CPATTN='$(abspath $(BUILD)/$(1)/cpattn)' \
	sh harness/run_test.sh $(1) $(BUILD)/$(1)/$(2)

FUZZ_RUNS ?= 20000
CORPUS_fuzz_recording := data/recordings data/recordings/bad
CORPUS_fuzz_model := data/models
CORPUS_fuzz_report := harness/corpus_report
CORPUS_fuzz_options := harness/corpus_options

# test_rules(mode)
define test_rules
$(TESTS:%=run/$(1)/%): run/$(1)/%: $(BUILD)/$(1)/% $(BUILD)/$(1)/cpattn
	@$$(call run_test,$(1),$$*) $(BUILD)/$(1)/$$*
endef
# Bad input must not read or write astray, which is what the sanitizers see: fuzzing runs in their build.
FUZZ_MODE := $(lastword $(TEST_MODES))
FUZZ_TESTS := $(FUZZERS:harness/%=run/$(FUZZ_MODE)/%)
$(if $(TESTS),$(foreach mode,$(TEST_MODES),$(eval $(call test_rules,$(mode)))))
$(FUZZ_TESTS): run/$(FUZZ_MODE)/%: $(BUILD)/$(FUZZ_MODE)/%
	@$(call run_test,$(FUZZ_MODE),$*) $< -runs=$(FUZZ_RUNS) $(CORPUS_$*)

run/$(MODE)/rooms:
	@$(call run_test,$(MODE),rooms) sh harness/rooms.sh

run/$(MODE)/install: all
	+@MAKE='$(MAKE) COMMIT=$(COMMIT)' MODE='$(MODE)' CC='$(CC)' $(call run_test,$(MODE),install) \
		sh harness/test_install.sh '$(PREFIX)'

RUNS := $(FUZZ_TESTS) $(foreach mode,$(TEST_MODES),$(TESTS:%=run/$(mode)/%)) run/$(MODE)/rooms \
	$(if $(SHARED),run/$(MODE)/install)
.PHONY: $(RUNS)

ifeq ($(HAVE_CMOCKA),0)
test:
	@echo "make test needs cmocka: run make deps test"; false
else
test: $(RUNS)
	$(if $(LEFT_OUT),@echo "left out without HDF5 or cJSON: $(LEFT_OUT)")
	$(if $(filter 0,$(HAVE_MPI)),@echo "without MPI nothing was tested among processes: run make deps and leave out MPI=0")
	@echo "cpattn_record.py is not tested here: make test-record does, in a Python environment of its own"
	@cat $(RUNS:run/%=$(BUILD)/%.result) | awk '{ passed += $$1; failed += $$2; skipped += $$3 } \
		END { printf "%d passed, %d failed", passed, failed; if (skipped) printf ", %d skipped", skipped; \
		print ""; exit failed > 0 }'
endif

# The recorder is Python: its tests need h5py, and PyTorch for all of them, so they are asked for by name.
.PHONY: test-record
test-record: $(B)/cpattn
	$(needs_hdf5)
	@CPATTN='$(abspath $(B)/cpattn)' PYTHON='$(PYTHON)' TORCH='$(TORCH)' sh harness/test_record.sh $(BUILD)

# ---- installation --------------------------------------------------------------------------------

D = $(DESTDIR)$(PREFIX)
PC = $(D)/lib/pkgconfig/cpattn.pc
COMPLETION = $(D)/share/bash-completion/completions/cpattn

install: $(B)/cpattn $(if $(filter 1,$(HAVE_MPI)),$(B)/cpattn_mpi.so) $(B)/libcpattn.a $(B)/libcpattn.so.$(SOVERSION)
	install -d $(D)/bin $(D)/lib/pkgconfig $(dir $(COMPLETION)) $(D)/share/doc/cpattn \
		$(D)/share/cpattn/recordings/peers $(D)/share/cpattn/models $(D)/share/cpattn/python \
		$(D)/share/cpattn/published $(D)/share/cpattn/reports \
		$(addprefix $(D)/include/cpattn/,$(LIBRARY_ROOMS))
	install -m 755 $(B)/cpattn $(D)/bin
	install -m 644 $(B)/libcpattn.a $(B)/libcpattn.so.$(SOVERSION) $(D)/lib
	$(if $(filter 1,$(HAVE_MPI)),install -d $(D)/lib/cpattn && install -m 644 $(B)/cpattn_mpi.so $(D)/lib/cpattn)
	ln -sf libcpattn.so.$(SOVERSION) $(D)/lib/libcpattn.so
	for header in $(PUBLIC_HEADERS); do \
		install -m 644 $$header $(D)/include/cpattn/$$header || exit 1; done
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' \
		-e 's|@PRIVATE@|$(strip $(OPENMP_CFLAGS) $(LIBRARY_LIBS))|' data/cpattn.pc.in >$(PC)
	chmod 644 $(PC)
	$(if $(wildcard data/cpattn.bash-completion),install -m 644 data/cpattn.bash-completion $(COMPLETION))
	install -m 644 README.md $(wildcard LICENSE NOTICE) $(D)/share/doc/cpattn
	$(if $(wildcard data/README.md),install -m 644 data/README.md $(D)/share/cpattn)
	install -m 644 data/bench.md $(D)/share/doc/cpattn
	install -m 644 data/python/cpattn_record.py $(D)/share/cpattn/python
	install -m 644 data/example_record.py data/example_record_ranks.py $(D)/share/cpattn
	$(if $(MODELS),install -m 644 $(MODELS) $(D)/share/cpattn/models)
	install -m 644 $(PUBLISHED) $(D)/share/cpattn/published
	install -m 644 $(PLOTS) $(D)/share/cpattn/reports
	$(if $(RECORDINGS),for file in $(RECORDINGS:data/%=%); do \
		install -m 644 data/$$file $(D)/share/cpattn/$$file || exit 1; done)

uninstall:
	rm -f $(D)/bin/cpattn $(D)/lib/libcpattn.a $(D)/lib/libcpattn.so $(D)/lib/libcpattn.so.$(SOVERSION) \
		$(PC) $(COMPLETION)
	rm -rf $(D)/include/cpattn $(D)/lib/cpattn $(D)/share/cpattn $(D)/share/doc/cpattn

clean:
	rm -rf $(BUILD)

help:
	@sed -n 's/^#: \{0,1\}//p' Makefile

#: make [TARGET...] [OPTION=VALUE...]
#:
#: all           the command and the libraries, in build/MODE (the default)
#: deps          installs what building and testing needs (Debian, Ubuntu; root or sudo)
#: verify        every variant on all recordings in data/: the main job
#: test          all tests, in the release build and in one with address and undefined sanitizers
#: check         all recordings on more worlds and in all dtypes, then RANDOM_PROBLEMS=100000 made-up
#:               problems, and check-faults (takes long)
#: check-faults  every fault, planted FAULT_TRIALS=4 times: seen, found, named?
#: bench         how fast this build is, beside the limits of this machine, row by row (ROWS=peak,rules
#:               picks some: peak bf16 rules decoding moves sets process mpi)
#: bench-verify  how long verification takes
#: bench-copies  merges, copies and poison of the cpu device against what this machine copies
#: compare       beside PyTorch, which it installs into build/compare-venv (COMPARE_ROUNDS=12 PIP_TORCH=torch)
#: bench-kernels attention on the CPU as shares of what the machine can do, per instruction set
#: test-record   tests the Python recorder; sets up build/record-venv from PyPI (PYTHON=python3 TORCH=auto|0)
#: install, uninstall   with PREFIX=/usr/local and DESTDIR=
#: clean         removes build/
#:
#: MODE=release|debug|asan|ubsan|tsan|fuzz    default release; fuzz needs clang
#: OPENMP HDF5 CJSON MPI = auto|1|0   auto takes what it finds, 1 stops if it is missing, 0 does not look
#: CUDA NCCL CUDNN SIMGRID = auto|0       no code of this version uses them
#: CC=gcc CFLAGS= CPPFLAGS= LDFLAGS=   WERROR=1 turns warnings into errors   V=1 prints commands
