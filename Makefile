# Short names for the usual work; `make help` lists them. CMakePresets.json
# holds the settings.

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
PREFIX ?= /usr/local
DESTDIR ?=

# CMake reads this where a build folder is new and keeps its choice after that.
export CMAKE_GENERATOR ?= \
  $(if $(shell command -v ninja),Ninja,Unix Makefiles)

# $(call configure,preset,settings), $(call compile,preset,targets): Ninja counts
# the steps, so that one sees how far it is.
configure = cmake --preset $(1) $(2) --log-level=NOTICE
compile = cmake --build --preset $(1) -j $(JOBS) $(addprefix --target ,$(2))
build_preset = $(call configure,$(1)) && $(call compile,$(1))
say = @echo "make: $(1)"
run_tests = ctest --test-dir $(1) -j $(JOBS) --output-on-failure
# Some kernels place memory where g++ 12's thread sanitizer does not expect it.
fixed_addresses = $(shell setarch -R true 2>/dev/null && echo setarch -R)
sources = $(shell find canzona cli bench fuzz tests \
  -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh')

# A build folder keeps its tests once `make test` has asked for them; `make build`
# compiles the program alone, whatever else the folder has.
.PHONY: build
build:  ## set up the machine and build build/canzona (the default)
	$(call say,1. what this machine lacks)
	sh scripts/setup.sh
	$(call say,2. the program build/canzona)
	$(call configure,release)
	$(call compile,release,canzona canzona_c)

.PHONY: demo
demo: build  ## train, compare, plan; leaves build/demo/report.html
	$(call say,3. the demonstration)
	sh scripts/demo.sh

.PHONY: test
test: build  ## build and run all tests but the heavy ones
	$(call say,3. what tests need)
	sh scripts/setup.sh --tests
	sh scripts/setup.sh --browser
	$(call say,4. the tests' programs)
	$(call configure,release,-DCANZONA_BUILD_TESTS=ON -DCANZONA_HEAVY_TESTS=OFF)
	$(call compile,release)
	$(call say,5. the tests)
	$(call run_tests,build) -LE heavy
	$(call say,6. the tests of the PyTorch package)
	sh scripts/setup.sh --python
	sh scripts/python.sh quick

.PHONY: test-all
test-all: build  ## build and run all tests, those of MPI with MPICH, too
	sh scripts/setup.sh --tests
	sh scripts/setup.sh --strace
	sh scripts/setup.sh --browser
	$(call configure,release,-DCANZONA_BUILD_TESTS=ON -DCANZONA_HEAVY_TESTS=ON)
	$(call compile,release)
	$(call run_tests,build)
	JOBS=$(JOBS) sh scripts/test_mpich.sh

# SOAK_TRIALS: random kills. SOAK_ARGS: further words for rows.py, such as
# --no-bars on a machine with other work.
SOAK_TRIALS ?= 200
SOAK_ARGS ?=

.PHONY: soak
soak: build  ## hit runs by hundreds of faults; writes build/soak.md
	sh scripts/setup.sh --tests
	sh scripts/setup.sh --strace
	$(call configure,release,-DCANZONA_BUILD_TESTS=ON -DCANZONA_HEAVY_TESTS=ON)
	$(call compile,release)
	python3 tests/reliability/rows.py build/canzona mpirun --tier C \
	  --kills $(SOAK_TRIALS) --build build --table build/soak.md $(SOAK_ARGS)

.PHONY: cuda
cuda:  ## build build-cuda/canzona, which uses NVIDIA GPUs; needs nvcc
	sh scripts/setup.sh
	sh scripts/setup_cuda.sh
	$(call build_preset,cuda)

.PHONY: test-cuda
test-cuda: cuda  ## build and run the tests that need a GPU
	sh scripts/setup.sh --tests
	$(call configure,cuda,-DCANZONA_BUILD_TESTS=ON)
	$(call compile,cuda-tests)
	build-cuda/gpu_present
	ctest --test-dir build-cuda -L '^cuda$$' --output-on-failure \
	  --no-tests=error

.PHONY: asan
asan:  ## run the tests with address and undefined-behaviour sanitizers
	sh scripts/setup.sh --tests
	$(call build_preset,asan)
	$(call run_tests,build-asan) -LE heavy

.PHONY: tsan
tsan:  ## run the tests with the thread sanitizer
	sh scripts/setup.sh --tests
	$(call build_preset,tsan)
	$(fixed_addresses) $(call run_tests,build-tsan) -LE heavy

.PHONY: bench
bench:  ## build the benchmarks and run them
	sh scripts/setup.sh
	$(call configure,release,-DCANZONA_BUILD_BENCH=ON)
	$(call compile,release)
	sh scripts/bench.sh

.PHONY: bench-torch
bench-torch:  ## time the rules beside PyTorch, which goes into build/torch
	sh scripts/setup.sh
	$(call configure,release,-DCANZONA_BUILD_BENCH=ON)
	$(call compile,release)
	sh scripts/bench_torch.sh $(BENCH_TORCH_ARGS)

# Ranks of which one fails; 200 before a release.
NCCL_FAULTS ?= 50

.PHONY: test-nccl
test-nccl: cuda  ## run ranks of NCCL that share this machine's GPU, and hit them
	sh scripts/test_nccl.sh build-cuda/canzona $(TEST_NCCL_RANKS)
	python3 scripts/test_nccl_faults.py build-cuda/canzona \
	  --trials $(NCCL_FAULTS)

.PHONY: sanitize-cuda
sanitize-cuda: cuda  ## run GPU tests of kernels and ranks under compute-sanitizer
	sh scripts/setup.sh --tests
	$(call configure,cuda,-DCANZONA_BUILD_TESTS=ON)
	$(call compile,cuda-tests)
	sh scripts/sanitize_cuda.sh

.PHONY: bench-cuda
bench-cuda: cuda  ## time the rules on a GPU beside python3's PyTorch
	$(call configure,cuda,-DCANZONA_BUILD_BENCH=ON)
	$(call compile,cuda-bench)
	sh scripts/bench_cuda.sh $(BENCH_CUDA_ARGS)

.PHONY: bench-lanes
bench-lanes: cuda  ## show what streams of a GPU hide of modelled links
	sh scripts/bench_lanes.sh build-cuda $(BENCH_LANES_ARGS)

# PYTHON: an interpreter that has PyTorch; it gets the package and nothing else.
PYTHON ?=
export PYTHON

.PHONY: python
python: build  ## PyTorch and the package canzona in build/python, or in PYTHON
	sh scripts/setup.sh --python
	sh scripts/python.sh environment

.PHONY: test-python
test-python: python  ## run all tests that need PyTorch
	sh scripts/python.sh tests $(TEST_PYTHON_ARGS)

.PHONY: test-megatron
test-megatron: build cuda  ## train inside Megatron-Core on this machine's GPU
	sh scripts/test_megatron.sh $(TEST_MEGATRON_ARGS)

.PHONY: wheel
wheel:  ## build build/wheels/canzona-*.whl, for CPUs and GPUs and Python 3.10 on
	sh scripts/setup.sh
	sh scripts/setup.sh --python
	sh scripts/python.sh wheel

# WHEELS: a folder with wheels for other kinds of CPUs.
WHEELS ?=

.PHONY: release
release:  ## check versions, build and test a wheel, write build/release
	python3 scripts/release.py check
	$(MAKE) wheel
	sh scripts/test_wheel.sh build/wheels/*.whl
	python3 scripts/release.py write $(WHEELS)

.PHONY: fuzz
fuzz:  ## run each fuzz target for FUZZ_SECONDS (60)
	sh scripts/setup.sh --tools
	$(call build_preset,fuzz)
	sh scripts/fuzz.sh $(FUZZ_SECONDS)

.PHONY: format
format:  ## rewrite the sources in the project's format
	sh scripts/setup.sh --tools
	clang-format -i $(sources)

.PHONY: lint
lint:  ## check format and clang-tidy
	sh scripts/setup.sh --tools
	clang-format --dry-run --Werror $(sources)
	$(call build_preset,dev)
	sh scripts/lint.sh build-dev

.PHONY: build-times
build-times: build  ## list the dearest sources and headers of build/
	scripts/build_times build

.PHONY: install
install: build  ## install under PREFIX (/usr/local), honouring DESTDIR
	DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

.PHONY: clean
clean:  ## remove all build folders
	rm -rf build build-asan build-cuda build-dev build-fuzz build-mpich \
	  build-plan-only build-tsan build-wheel

.PHONY: help
help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 12
