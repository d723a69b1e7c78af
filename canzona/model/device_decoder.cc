#include "canzona/model/trained_decoder.h"

namespace canzona {

void check_device_decoder(const DecoderConfig&, const std::string&) {}
int64_t device_decoder_memory(const DecoderConfig&, int64_t, int64_t) {
  return 0;
}

}  // namespace canzona
