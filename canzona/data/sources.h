// What token sources share.
#pragma once

#include <memory>
#include <string>

#include "canzona/data/token_source.h"

namespace canzona {

// All text files below `path`.
std::unique_ptr<TokenSource> open_folder(const std::string& path,
                                         const TokenOptions& options);

// What TokenSource::digest() promises, for any source.
std::string digest_of(const TokenSource& tokens);

}  // namespace canzona
