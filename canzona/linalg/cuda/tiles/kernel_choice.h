// Which kernels compute 16-bit products of Newton–Schulz.
#pragma once

namespace canzona::linalg {

// kAuto: the fastest, kTiles for 9.0 and kCublas for others.
enum class KernelChoice { kAuto, kTiles, kPortable, kCublas };

// Returns what CANZONA_KERNELS asks for; throws UsageError if it is none of
// auto, tiles, portable and cublas.
KernelChoice kernel_choice();

// True if the current device uses cuBLAS.
bool uses_cublas();

// Returns what the current device uses, in words. Throws UsageError if it does
// not have what is asked for.
const char* kernel_name();

}  // namespace canzona::linalg
