# Short names for the usual work; `make help` lists them. CMakePresets.json
# holds the settings.

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
PREFIX ?= /usr/local
DESTDIR ?=

# CMake reads this where a build folder is new and keeps its choice after that.
export CMAKE_GENERATOR ?= \
  $(if $(shell command -v ninja),Ninja,Unix Makefiles)

build_preset = cmake --preset $(1) && cmake --build --preset $(1) -j $(JOBS)
run_tests = ctest --test-dir $(1) -j $(JOBS) --output-on-failure
# Some kernels place memory where g++ 12's thread sanitizer does not expect it.
fixed_addresses = $(shell setarch -R true 2>/dev/null && echo setarch -R)
sources = $(shell find canzona cli bench fuzz tests \
  -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh')

.PHONY: build
build:  ## set up the machine and build build/canzona (the default)
	sh scripts/setup.sh
	$(call build_preset,release)

.PHONY: demo
demo: build  ## plan, compare, check, time; leaves build/demo/report.html
	sh scripts/demo.sh

.PHONY: test
test: build  ## build and run all tests but the heavy ones
	sh scripts/setup.sh --browser
	$(call run_tests,build) -LE heavy

.PHONY: test-all
test-all: build  ## build and run all tests, those of MPI with MPICH, too
	sh scripts/setup.sh --browser
	$(call run_tests,build)
	JOBS=$(JOBS) sh scripts/test_mpich.sh

.PHONY: cuda
cuda:  ## build build-cuda/canzona, which uses NVIDIA GPUs; needs nvcc
	sh scripts/setup.sh
	sh scripts/setup_cuda.sh
	$(call build_preset,cuda)

.PHONY: test-cuda
test-cuda: cuda  ## build and run the tests that need a GPU
	cmake --build --preset cuda-tests -j $(JOBS)
	build-cuda/gpu_present
	ctest --test-dir build-cuda -L '^cuda$$' --output-on-failure \
	  --no-tests=error

.PHONY: asan
asan:  ## run the tests with address and undefined-behaviour sanitizers
	sh scripts/setup.sh
	$(call build_preset,asan)
	$(call run_tests,build-asan) -LE heavy

.PHONY: tsan
tsan:  ## run the tests with the thread sanitizer
	sh scripts/setup.sh
	$(call build_preset,tsan)
	$(fixed_addresses) $(call run_tests,build-tsan) -LE heavy

.PHONY: bench
bench:  ## build the benchmarks and run them
	sh scripts/setup.sh
	cmake --preset release -DCANZONA_BUILD_BENCH=ON
	cmake --build --preset release -j $(JOBS)
	sh scripts/bench.sh

.PHONY: bench-torch
bench-torch:  ## time the rules beside PyTorch, which goes into build/torch
	sh scripts/setup.sh
	cmake --preset release -DCANZONA_BUILD_BENCH=ON
	cmake --build --preset release -j $(JOBS)
	sh scripts/bench_torch.sh $(BENCH_TORCH_ARGS)

.PHONY: sanitize-cuda
sanitize-cuda: cuda  ## run the GPU's kernels under compute-sanitizer
	cmake --build --preset cuda-tests -j $(JOBS)
	sh scripts/sanitize_cuda.sh

.PHONY: bench-cuda
bench-cuda: cuda  ## time the rules on a GPU beside python3's PyTorch
	sh scripts/bench_cuda.sh $(BENCH_CUDA_ARGS)

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
	cmake --preset dev
	cmake --build --preset dev -j $(JOBS)
	sh scripts/lint.sh build-dev

.PHONY: install
install: build  ## install under PREFIX (/usr/local), honouring DESTDIR
	DESTDIR="$(DESTDIR)" cmake --install build --prefix "$(PREFIX)"

.PHONY: clean
clean:  ## remove all build folders
	rm -rf build build-asan build-cuda build-dev build-fuzz build-mpich \
	  build-plan-only build-tsan

.PHONY: help
help:  ## list these targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' Makefile | expand -t 12
