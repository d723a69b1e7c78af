// Replaces cuda/ in a build without CUDA.
#include "canzona/base/error.h"
#include "canzona/model/trained_decoder.h"

namespace canzona::model {

std::unique_ptr<TrainedDecoder<float>> make_device_decoder(
    const DecoderConfig& /*config*/, const Model& /*shapes*/,
    Engine& /*engine*/, DeviceWeights& /*weights*/, int64_t /*in_flight*/,
    int64_t /*together*/) {
  throw UsageError(
      "this build has no CUDA; build with `make cuda` on a machine with the "
      "CUDA toolkit, or use the CPU");
}

}  // namespace canzona::model
