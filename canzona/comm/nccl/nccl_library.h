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

#include <string>

#include "canzona/comm/nccl/nccl_api.h"

namespace canzona {

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
