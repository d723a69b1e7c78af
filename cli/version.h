// Says what this program was built from. The values are in a source that the
// build writes, so that a new commit recompiles only that one.
#pragma once

namespace canzona::cli {

extern const char* const kVersion;
extern const char* const kCommit;  // with "-dirty" if sources were changed
extern const char* const kBuildType;
extern const char* const kBuildOptions;
extern const char* const kCompiler;

}  // namespace canzona::cli
