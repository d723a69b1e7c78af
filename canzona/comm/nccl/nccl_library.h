// Finds NCCL at run time.
//
//   if (nccl_is_built()) std::cout << nccl_description();   // "NCCL 2.28.9, …"
//   const NcclApi& nccl = load_nccl();
//
// The first call of load_nccl() opens the library and keeps it open: the
// system's libnccl.so.2 or, if that is missing or too old, the one that Canzona
// was built with. Programs start without either. A build without NCCL links
// no_nccl.cc instead. Any thread may call.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

namespace canzona {

// The part of NCCL that Canzona uses, as a table of functions: the library's
// own, or those of a test.
//
//   const NcclApi& nccl = load_nccl();
//   nccl.all_gather(from, to, count, NcclType::kUint8, group, stream);
//
// The declarations are repeated here because tests run the same code without
// NCCL and without CUDA; nccl_library.cc checks them against nccl.h in builds
// that have it. Names and meanings are NCCL's.

struct NcclComm;
struct NcclWindow;

enum class NcclResult : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

enum class NcclType : int { kUint8 = 1, kInt64 = 4, kUint64 = 5 };
enum class NcclReduction : int { kSum = 0, kMax = 2 };

struct NcclId {
  char bytes[128];
};

// The layout of version 2.27, which newer libraries accept as well: `size`
// tells them where it ends.
struct NcclConfig {
  static constexpr int kUndefined = INT_MIN;

  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 22707;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
  int traffic_class = kUndefined;
  const char* comm_name = nullptr;
  int collnet_enable = kUndefined;
  int cta_policy = kUndefined;
  int shrink_share = kUndefined;
  int nvls_ctas = kUndefined;
};

// A stream is a cudaStream_t.
struct NcclApi {
  static constexpr int kSymmetric = 1;  // of window_register; else 0

  NcclResult (*get_version)(int* version) = nullptr;
  NcclResult (*get_unique_id)(NcclId* id) = nullptr;
  NcclResult (*comm_init_rank_config)(NcclComm** comm, int num_ranks, NcclId id,
                                      int rank, NcclConfig* config) = nullptr;
  NcclResult (*comm_finalize)(NcclComm* comm) = nullptr;
  NcclResult (*comm_destroy)(NcclComm* comm) = nullptr;
  NcclResult (*comm_abort)(NcclComm* comm) = nullptr;
  NcclResult (*comm_get_async_error)(NcclComm* comm,
                                     NcclResult* error) = nullptr;
  const char* (*get_error_string)(NcclResult result) = nullptr;
  const char* (*get_last_error)(NcclComm* comm) = nullptr;

  NcclResult (*all_reduce)(const void* from, void* to, size_t count,
                           NcclType type, NcclReduction reduction,
                           NcclComm* comm, void* stream) = nullptr;
  NcclResult (*broadcast)(const void* from, void* to, size_t count,
                          NcclType type, int root, NcclComm* comm,
                          void* stream) = nullptr;
  NcclResult (*all_gather)(const void* from, void* to, size_t count,
                           NcclType type, NcclComm* comm,
                           void* stream) = nullptr;
  NcclResult (*send)(const void* from, size_t count, NcclType type, int peer,
                     NcclComm* comm, void* stream) = nullptr;
  NcclResult (*recv)(void* to, size_t count, NcclType type, int peer,
                     NcclComm* comm, void* stream) = nullptr;
  NcclResult (*group_start)() = nullptr;
  NcclResult (*group_end)() = nullptr;

  // Null if the library does not have it.
  NcclResult (*mem_alloc)(void** memory, size_t bytes) = nullptr;
  NcclResult (*mem_free)(void* memory) = nullptr;
  NcclResult (*window_register)(NcclComm* comm, void* memory, size_t bytes,
                                NcclWindow** window, int flags) = nullptr;
  NcclResult (*window_deregister)(NcclComm* comm, NcclWindow* window) = nullptr;
  NcclResult (*comm_register)(const NcclComm* comm, void* memory, size_t bytes,
                              void** handle) = nullptr;
  NcclResult (*comm_deregister)(const NcclComm* comm, void* handle) = nullptr;
};

inline constexpr int kOldestNccl = 22707;

bool nccl_is_built();

// Returns "NCCL 2.28.9 (/usr/lib/…/libnccl.so.2)", or why there is none.
std::string nccl_description();

// Throws UsageError, with the versions and how to get one, if there is no
// library or it is older than kOldestNccl.
const NcclApi& load_nccl();

// "2.28.9" for 22809.
std::string nccl_version_text(int version);
// Returns the version of a table of functions; throws InternalError if the
// library does not report it.
int nccl_version_of(const NcclApi& nccl);

}  // namespace canzona
