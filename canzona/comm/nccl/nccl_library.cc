#include "canzona/comm/nccl/nccl_library.h"

#include <dlfcn.h>
#include <nccl.h>

#include <type_traits>
#include <variant>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

// The library that was found, or why there is none.
struct FoundNccl {
  NcclApi api = {};
  std::string path;
  int version = 0;
};
using NcclSearch = std::variant<FoundNccl, std::string>;

template <class Function>
bool look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

// Returns the name of a required function that is missing, or "".
std::string fill_table(void* library, NcclApi& api) {
  std::string missing;
  const auto need = [&](const char* name, auto& function) {
    if (!look_up(library, name, function) && missing.empty()) missing = name;
  };
  need("ncclGetVersion", api.get_version);
  need("ncclGetUniqueId", api.get_unique_id);
  need("ncclCommInitRankConfig", api.comm_init_rank_config);
  need("ncclCommFinalize", api.comm_finalize);
  need("ncclCommDestroy", api.comm_destroy);
  need("ncclCommAbort", api.comm_abort);
  need("ncclCommGetAsyncError", api.comm_get_async_error);
  need("ncclGetErrorString", api.get_error_string);
  need("ncclGetLastError", api.get_last_error);
  need("ncclAllReduce", api.all_reduce);
  need("ncclBroadcast", api.broadcast);
  need("ncclAllGather", api.all_gather);
  need("ncclSend", api.send);
  need("ncclRecv", api.recv);
  need("ncclGroupStart", api.group_start);
  need("ncclGroupEnd", api.group_end);
  look_up(library, "ncclMemAlloc", api.mem_alloc);
  look_up(library, "ncclMemFree", api.mem_free);
  look_up(library, "ncclCommWindowRegister", api.window_register);
  look_up(library, "ncclCommWindowDeregister", api.window_deregister);
  look_up(library, "ncclCommRegister", api.comm_register);
  look_up(library, "ncclCommDeregister", api.comm_deregister);
  return missing;
}

std::string path_of(void* function) {
  Dl_info info{};
  return ::dladdr(function, &info) != 0 && info.dli_fname != nullptr
             ? info.dli_fname
             : "libnccl.so.2";
}

NcclSearch open_nccl(const char* name) {
  void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::string(::dlerror());
  FoundNccl found;
  const std::string missing = fill_table(library, found.api);
  std::string why;
  if (!missing.empty()) {
    why = cat(name, " has no ", missing);
  } else {
    found.path = path_of(reinterpret_cast<void*>(found.api.get_version));
    found.version = nccl_version_of(found.api);
    if (found.version >= kOldestNccl) return found;
    why = cat(found.path, " is NCCL ", nccl_version_text(found.version));
  }
  ::dlclose(library);
  return why;
}

NcclSearch search_nccl() {
  NcclSearch named = open_nccl("libnccl.so.2");
  if (std::holds_alternative<FoundNccl>(named)) return named;
  NcclSearch built = open_nccl(CANZONA_NCCL_PATH);
  if (std::holds_alternative<FoundNccl>(built)) return built;
  return cat("NCCL ", nccl_version_text(kOldestNccl),
             " or newer is needed, but ", std::get<std::string>(named),
             ", and ", std::get<std::string>(built),
             "; install libnccl2, or pip install nvidia-nccl-cu13 and add its "
             "folder to LD_LIBRARY_PATH");
}

const NcclSearch& nccl_search() {
  static const NcclSearch search = search_nccl();
  return search;
}

}  // namespace

bool nccl_is_built() { return true; }

std::string nccl_description() {
  if (const auto* why = std::get_if<std::string>(&nccl_search())) return *why;
  const auto& found = std::get<FoundNccl>(nccl_search());
  return cat("NCCL ", nccl_version_text(found.version), " (", found.path, ")");
}

const NcclApi& load_nccl() {
  if (const auto* why = std::get_if<std::string>(&nccl_search()))
    throw UsageError(*why);
  return std::get<FoundNccl>(nccl_search()).api;
}

// Checks nccl_library.h against NCCL's own header at compile time.

namespace {

static_assert(NCCL_VERSION_CODE >= kOldestNccl);

template <class Ours, class Theirs>
constexpr bool same_value(Ours ours, Theirs theirs) {
  return sizeof(Ours) == sizeof(Theirs) &&
         static_cast<int>(ours) == static_cast<int>(theirs);
}
static_assert(same_value(NcclResult::kSuccess, ncclSuccess));
static_assert(same_value(NcclResult::kUnhandledCudaError,
                         ncclUnhandledCudaError));
static_assert(same_value(NcclResult::kSystemError, ncclSystemError));
static_assert(same_value(NcclResult::kInternalError, ncclInternalError));
static_assert(same_value(NcclResult::kInvalidArgument, ncclInvalidArgument));
static_assert(same_value(NcclResult::kInvalidUsage, ncclInvalidUsage));
static_assert(same_value(NcclResult::kRemoteError, ncclRemoteError));
static_assert(same_value(NcclResult::kInProgress, ncclInProgress));
static_assert(same_value(NcclType::kUint8, ncclUint8));
static_assert(same_value(NcclType::kInt64, ncclInt64));
static_assert(same_value(NcclType::kUint64, ncclUint64));
static_assert(same_value(NcclReduction::kSum, ncclSum));
static_assert(same_value(NcclReduction::kMax, ncclMax));
static_assert(NcclConfig::kUndefined == NCCL_CONFIG_UNDEF_INT);
static_assert(NcclApi::kSymmetric == NCCL_WIN_COLL_SYMMETRIC);
static_assert(sizeof(NcclId) == sizeof(ncclUniqueId));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(offsetof(NcclConfig, blocking) ==
              offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, min_ctas) ==
              offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(NcclConfig, net_name) ==
              offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, comm_name) ==
              offsetof(ncclConfig_t, commName));
static_assert(offsetof(NcclConfig, cta_policy) ==
              offsetof(ncclConfig_t, CTAPolicy));
static_assert(offsetof(NcclConfig, nvls_ctas) ==
              offsetof(ncclConfig_t, nvlsCTAs));

// True if our function takes the same number of arguments, of the same sizes.
template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class Back, class TheirBack, class... Ours, class... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) struct SameCall<Back (*)(Ours...),
                                            TheirBack (*)(Theirs...)>
    : std::bool_constant<sizeof(Back) == sizeof(TheirBack) &&
                         ((sizeof(Ours) == sizeof(Theirs)) && ...)> {
};
template <class Ours, class Theirs>
constexpr bool same_call(Ours NcclApi::*, Theirs) {
  return SameCall<Ours, Theirs>::value;
}
static_assert(same_call(&NcclApi::get_version, &ncclGetVersion));
static_assert(same_call(&NcclApi::get_unique_id, &ncclGetUniqueId));
static_assert(same_call(&NcclApi::comm_init_rank_config,
                        &ncclCommInitRankConfig));
static_assert(same_call(&NcclApi::comm_finalize, &ncclCommFinalize));
static_assert(same_call(&NcclApi::comm_destroy, &ncclCommDestroy));
static_assert(same_call(&NcclApi::comm_abort, &ncclCommAbort));
static_assert(same_call(&NcclApi::comm_get_async_error,
                        &ncclCommGetAsyncError));
static_assert(same_call(&NcclApi::get_error_string, &ncclGetErrorString));
static_assert(same_call(&NcclApi::get_last_error, &ncclGetLastError));
static_assert(same_call(&NcclApi::all_reduce, &ncclAllReduce));
static_assert(same_call(&NcclApi::broadcast, &ncclBroadcast));
static_assert(same_call(&NcclApi::all_gather, &ncclAllGather));
static_assert(same_call(&NcclApi::send, &ncclSend));
static_assert(same_call(&NcclApi::recv, &ncclRecv));
static_assert(same_call(&NcclApi::group_start, &ncclGroupStart));
static_assert(same_call(&NcclApi::group_end, &ncclGroupEnd));
static_assert(same_call(&NcclApi::mem_alloc, &ncclMemAlloc));
static_assert(same_call(&NcclApi::mem_free, &ncclMemFree));
static_assert(same_call(&NcclApi::window_register, &ncclCommWindowRegister));
static_assert(same_call(&NcclApi::window_deregister,
                        &ncclCommWindowDeregister));
static_assert(same_call(&NcclApi::comm_register, &ncclCommRegister));
static_assert(same_call(&NcclApi::comm_deregister, &ncclCommDeregister));

}  // namespace

}  // namespace canzona
