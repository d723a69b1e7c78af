#include "canzona/train/stage.h"

#include "canzona/model/decoder_memory.h"

namespace canzona {
namespace {

int64_t bytes_of_floats(int64_t count) { return count * kBytesPerFp32; }

int64_t micro_batches_of_home(const TrainSettings& settings, const Mesh& mesh) {
  return settings.global_batch / (settings.decoder.micro_batch * mesh.homes());
}

// Numbers that travel between stages, and tokens.
int64_t slot_bytes(const DecoderConfig& config, bool first, bool last) {
  const int64_t activations = config.tokens() * config.architecture.hidden;
  const int64_t sides = (first ? 0 : 2) + (last ? 0 : 2);
  const int64_t tokens = config.micro_batch * (config.length + 1);
  return bytes_of_floats(sides * activations) +
         tokens * static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace

Stage::Stage(const TrainSettings& settings, const MicroBatches& micro_batches,
             Runtime& runtime, Communicator& world, Engine& engine)
    : settings_(settings),
      micro_batches_(micro_batches),
      plan_(runtime.plan()),
      place_(runtime.place()),
      mesh_(runtime.plan().mesh),
      groups_(world, mesh_, place_),
      parallel_(groups_.parallel(runtime.plan(), place_)),
      weights_(world, runtime),
      links_(world, mesh_, place_, micro_batches.per_home()),
      in_flight_(
          most_in_flight(place_.stage, mesh_.pp, micro_batches.per_home())),
      decoder_(settings.decoder, runtime.plan().model, parallel_, engine,
               weights_, in_flight_),
      slots_(static_cast<size_t>(in_flight_)) {
  const DecoderConfig& config = settings.decoder;
  const auto activations =
      static_cast<size_t>(config.tokens() * config.architecture.hidden);
  for (Slot& slot : slots_) {
    slot.sequences.resize(
        static_cast<size_t>(config.micro_batch * (config.length + 1)));
    if (!parallel_.has_embedding) {
      slot.input.resize(activations);
      slot.input_gradient.resize(activations);
    }
    if (!parallel_.has_head) {
      slot.output.resize(activations);
      slot.output_gradient.resize(activations);
    }
  }
}

Stage::Slot& Stage::slot_of(int64_t micro_batch) {
  return slots_[static_cast<size_t>(micro_batch % in_flight_)];
}

double Stage::forward(int64_t step, int64_t m) {
  Slot& slot = slot_of(m);
  micro_batches_.read_train(step, m, slot.sequences);
  if (!parallel_.has_embedding) links_.receive_input(slot.input);
  slot.output_sent.wait();
  const double loss = decoder_.forward(m % in_flight_, slot.sequences,
                                       slot.input.data(), slot.output.data());
  if (!parallel_.has_head) slot.output_sent = links_.send_output(slot.output);
  return loss;
}

void Stage::backward(int64_t m) {
  Slot& slot = slot_of(m);
  if (!parallel_.has_head) links_.receive_output_gradient(slot.output_gradient);
  slot.input_gradient_sent.wait();
  const bool last = m + 1 == micro_batches_.per_home();
  decoder_.backward(m % in_flight_, slot.sequences, slot.output_gradient.data(),
                    slot.input_gradient.data(), last);
  if (!parallel_.has_embedding)
    slot.input_gradient_sent = links_.send_input_gradient(slot.input_gradient);
}

std::vector<double> Stage::learn(int64_t step) {
  weights_.refresh();
  const int64_t count = micro_batches_.per_home();
  std::vector<double> losses(static_cast<size_t>(count));
  for (const StageTask& task : schedule_1f1b(place_.stage, mesh_.pp, count)) {
    if (task.forward)
      losses[static_cast<size_t>(task.micro_batch)] =
          forward(step, task.micro_batch);
    else
      backward(task.micro_batch);
  }
  for (Slot& slot : slots_) {
    slot.output_sent.wait();
    slot.input_gradient_sent.wait();
  }
  return losses;
}

std::vector<double> Stage::evaluate(int64_t num_sequences) {
  weights_.refresh();
  std::vector<double> losses;
  const int64_t rounds = micro_batches_.held_out_rounds(num_sequences);
  for (int64_t round = 0; round < rounds; ++round) {
    Slot& slot = slot_of(round);
    micro_batches_.read_held_out(micro_batches_.number_in_round(round),
                                 slot.sequences);
    if (!parallel_.has_embedding) links_.receive_input(slot.input);
    slot.output_sent.wait();
    losses.push_back(decoder_.evaluate(slot.sequences, slot.input.data(),
                                       slot.output.data()));
    if (!parallel_.has_head) slot.output_sent = links_.send_output(slot.output);
  }
  for (Slot& slot : slots_) slot.output_sent.wait();
  return losses;
}

double Stage::waited() const {
  return links_.waited() + weights_.waited() + decoder_.comm_seconds();
}
double Stage::busy() const {
  return links_.busy() + weights_.busy() + decoder_.comm_seconds();
}

int64_t Stage::reserved() const {
  return decoder_.reserved() +
         in_flight_ * slot_bytes(settings_.decoder, parallel_.has_embedding,
                                 parallel_.has_head) +
         bytes_of_floats(RuntimeWeights::extra_elements(plan_, place_));
}

int64_t Stage::memory(const TrainSettings& settings, const Plan& plan,
                      const RankPlace& place) {
  const Mesh& mesh = plan.mesh;
  const int64_t layers = plan.model.num_layers / mesh.pp;
  const bool first = place.stage == 0;
  const bool last = place.stage == mesh.pp - 1;
  const int64_t in_flight = most_in_flight(
      place.stage, mesh.pp, micro_batches_of_home(settings, mesh));
  Parallel part;
  part.first_layer = place.stage * layers;
  part.num_layers = layers;
  part.has_embedding = first;
  part.has_head = last;
  part.planned_tp = mesh.tp;
  part.planned_ep = mesh.ep;
  return decoder_memory<float>(settings.decoder, part, in_flight) +
         in_flight * slot_bytes(settings.decoder, first, last) +
         bytes_of_floats(RuntimeWeights::extra_elements(plan, place));
}

}  // namespace canzona
