#include "canzona/train/local_decoder.h"

#include <algorithm>
#include <vector>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

// Layers whose activations are not needed again share their memory.
DecoderConfig forward_alone(DecoderConfig config) {
  config.recompute = true;
  return config;
}

}  // namespace

LocalDecoder::Held::Held(const Model& shapes, const TensorSource& source) {
  tensors_.reserve(shapes.tensors.size());
  for (const Tensor& tensor : shapes.tensors) {
    tensors_.emplace_back(index(tensor.elements()));
    source(tensor, tensors_.back());
  }
}

const float* LocalDecoder::Held::parameter(int32_t tensor) {
  return whole(tensor).data();
}

float* LocalDecoder::Held::gradient(int32_t tensor) {
  CANZONA_CHECK(false, "tensor ", tensor, " has no gradient here");
  return nullptr;
}

std::span<const float> LocalDecoder::Held::whole(int32_t tensor) const {
  return tensors_.at(index(tensor));
}

LocalDecoder::LocalDecoder(const DecoderConfig& config, const std::string& name,
                           const TensorSource& source)
    : config_(forward_alone(config)),
      shapes_(decoder_shapes(config_, name)),
      engine_(make_cpu_engine()),
      weights_(shapes_, source),
      decoder_(config_, shapes_, {.num_layers = config_.architecture.layers},
               *engine_, weights_),
      sequences_(index(config_.micro_batch * (config_.length + 1))) {}

std::span<const float> LocalDecoder::weights(int32_t tensor) const {
  return weights_.whole(tensor);
}

void LocalDecoder::check_tokens(std::span<const int32_t> tokens,
                                int64_t count) const {
  CANZONA_CHECK_EQ(tokens.size(), count, "tokens of a micro-batch");
  const int64_t vocab = config_.architecture.vocab;
  for (const int32_t token : tokens)
    if (token < 0 || token >= vocab)
      throw UsageError(cat("model ", quoted(shapes_.name), ": token ", token,
                           " is not in the vocabulary of ", vocab));
}

double LocalDecoder::loss(std::span<const int32_t> sequences, int64_t counted) {
  check_tokens(sequences, config_.micro_batch * (config_.length + 1));
  return decoder_.evaluate(sequences, nullptr, nullptr, counted);
}

void LocalDecoder::logits(std::span<const int32_t> tokens,
                          const UseLogits<float>& use) {
  const int64_t length = config_.length;
  check_tokens(tokens, config_.tokens());
  for (int64_t i = 0; i < config_.micro_batch; ++i)
    std::copy_n(tokens.begin() + i * length, length,
                sequences_.begin() + i * (length + 1));
  decoder_.logits(sequences_, use);
}

double mean_loss(LocalDecoder& model, int64_t count, const ReadSequence& read,
                 const std::function<void(int64_t)>& done) {
  CANZONA_CHECK(count > 0);
  const int64_t at_once = model.config().micro_batch;
  const int64_t length = model.config().length + 1;
  std::vector<int32_t> tokens(index(at_once * length));
  double sum = 0;
  for (int64_t first = 0; first < count; first += at_once) {
    // Sequences that pad the last micro-batch do not count.
    for (int64_t i = 0; i < at_once; ++i)
      read((first + i) % count,
           std::span(tokens).subspan(index(i * length), index(length)));
    const int64_t counted = std::min(at_once, count - first);
    sum += model.loss(tokens, counted) * static_cast<double>(counted);
    done(first + counted);
  }
  return sum / static_cast<double>(count);
}

}  // namespace canzona
