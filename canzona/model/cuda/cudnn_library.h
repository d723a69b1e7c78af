// cuDNN 9, loaded when it is first needed, so that programs start without it:
// the loader's own path, the folder that the build found, python3's packages.
// Any thread may call.
#pragma once

#include <string>

namespace canzona::model {

// Throws UsageError that says where it was looked for.
void load_cudnn();

// Requires load_cudnn(): "cuDNN 9.19.0".
std::string cudnn_version();

}  // namespace canzona::model
