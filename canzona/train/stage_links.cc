#include "canzona/train/stage_links.h"

#include "canzona/base/check.h"
#include "canzona/base/text.h"

namespace canzona {

OneWay::OneWay(Communicator& world, int color, int key, bool from_lower,
               const std::string& name, int capacity)
    : name_(name),
      sender_(from_lower ? 0 : 1),
      pair_(world.split(color, key, name)) {
  if (pair_ == nullptr) return;
  CANZONA_CHECK_EQ(pair_->size(), 2);
  courier_ = std::make_unique<Courier>(*pair_, capacity);
}

Work OneWay::post(std::span<float> numbers) {
  return courier_->broadcast(sender_, std::as_writable_bytes(numbers),
                             {.label = name_});
}

Work OneWay::send(std::span<float> numbers) {
  CANZONA_CHECK_EQ(pair_->rank(), sender_);
  return post(numbers);
}

void OneWay::receive(std::span<float> numbers) {
  CANZONA_CHECK(pair_->rank() != sender_, name_, ": the sender receives");
  const int64_t begin = steady_nanoseconds();
  post(numbers).wait();
  waited_ += 1e-9 * static_cast<double>(steady_nanoseconds() - begin);
}

double OneWay::busy() const {
  return courier_ == nullptr
             ? 0
             : std::chrono::duration<double>(courier_->busy()).count();
}

StageLinks::StageLinks(Communicator& world, const Mesh& mesh,
                       const Coordinates& at, int64_t capacity) {
  const int32_t plane = at.home * mesh.tp + at.t;
  for (int32_t s = 0; s + 1 < mesh.pp; ++s) {
    const bool lower = at.stage == s;
    const bool upper = at.stage == s + 1;
    const int color = lower || upper ? plane : -1;
    const auto add = [&](bool forward) {
      all_.push_back(
          std::make_unique<OneWay>(world, color, at.stage, forward,
                                   cat(forward ? "activations" : "gradients",
                                       " between stages ", s, " and ", s + 1),
                                   static_cast<int>(capacity) + 1));
      return all_.back().get();
    };
    OneWay* forward = add(true);
    OneWay* backward = add(false);
    if (lower) {
      output_ = forward;
      output_gradient_ = backward;
    } else if (upper) {
      input_ = forward;
      input_gradient_ = backward;
    }
  }
}

void StageLinks::receive_input(std::span<float> numbers) {
  input_->receive(numbers);
}
Work StageLinks::send_output(std::span<float> numbers) {
  return output_->send(numbers);
}
void StageLinks::receive_output_gradient(std::span<float> numbers) {
  output_gradient_->receive(numbers);
}
Work StageLinks::send_input_gradient(std::span<float> numbers) {
  return input_gradient_->send(numbers);
}

double StageLinks::waited() const {
  double seconds = 0;
  for (const auto& way : all_) seconds += way->waited();
  return seconds;
}
double StageLinks::busy() const {
  double seconds = 0;
  for (const auto& way : all_) seconds += way->busy();
  return seconds;
}

}  // namespace canzona
