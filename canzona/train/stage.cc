#include "canzona/train/stage.h"

#include "canzona/model/decoder.h"
#include "canzona/model/decoder_memory.h"

namespace canzona::train {
namespace {

// Returns the embedding if the model has no head of its own, otherwise -1.
int32_t tied_embedding(const Model& model) {
  int32_t embedding = -1;
  for (int32_t t = 0; t < std::ssize(model.tensors); ++t) {
    const Role role = model.tensors[static_cast<size_t>(t)].role;
    if (role == Role::kHead) return -1;
    if (role == Role::kEmbedding) embedding = t;
  }
  return embedding;
}

// Returns how many elements the first stage lends to the last one; 0 if none.
int64_t shared_elements(const Plan& plan) {
  const int32_t tied = tied_embedding(plan.model);
  if (plan.mesh.pp == 1 || tied < 0) return 0;
  return shard_elements(plan.mesh,
                        plan.model.tensors[static_cast<size_t>(tied)]);
}

}  // namespace

int64_t RuntimeWeights::extra_elements(const Plan& plan,
                                       const Coordinates& at) {
  if (at.stage == plan.mesh.pp - 1) return 2 * shared_elements(plan);
  return at.stage == 0 ? shared_elements(plan) : 0;
}

RuntimeWeights::RuntimeWeights(Communicator& world, Runtime& runtime,
                               Trace* trace)
    : RuntimeTensors(runtime, trace, world.rank(), nullptr) {
  const Mesh& mesh = runtime.plan().mesh;
  const Coordinates& at = runtime.coordinates();
  const int32_t tied = tied_embedding(runtime.plan().model);
  if (mesh.pp == 1 || tied < 0) return;
  const bool first = at.stage == 0;
  const bool last = at.stage == mesh.pp - 1;
  const int color = first || last ? at.home * mesh.tp + at.t : -1;
  weights_ = std::make_unique<OneWay>(world, color, at.stage, true,
                                      "the embedding, for the head", 1);
  gradients_ = std::make_unique<OneWay>(world, color, at.stage, false,
                                        "the head's gradient", 1);
  if (!first && !last) return;
  shared_ = tied;
  borrows_ = last;
  const auto size = static_cast<size_t>(shared_elements(runtime.plan()));
  if (last) {
    borrowed_.resize(size);
    gradient_.resize(size);
  } else {
    arrived_.resize(size);
  }
}

void RuntimeWeights::refresh() {
  if (shared_ < 0) return;
  if (borrows_) {
    gradient_sent_.wait();
    std::ranges::fill(gradient_, 0.0F);
    weights_->receive(borrowed_);
    return;
  }
  runtime_.wait_params(0);
  weights_->send(runtime_.parameter(shared_).first(arrived_.size())).wait();
  runtime_.release_params(0);
}

const float* RuntimeWeights::parameter(int32_t tensor) {
  if (shares(tensor) && borrows_) return borrowed_.data();
  return RuntimeTensors::parameter(tensor);
}

float* RuntimeWeights::gradient(int32_t tensor) {
  if (!shares(tensor) || !borrows_) return RuntimeTensors::gradient(tensor);
  spans_.gradient_asked();
  return gradient_.data();
}

void RuntimeWeights::ready(int32_t tensor, bool last) {
  if (shares(tensor) && borrows_) {
    if (last) gradient_sent_ = gradients_->send(gradient_);
    return;
  }
  if (shares(tensor) && last) add_head_gradient();
  RuntimeTensors::ready(tensor, last);
}

void RuntimeWeights::add_head_gradient() {
  gradients_->receive(arrived_);
  const std::span<float> own = runtime_.gradient(shared_);
  for (size_t i = 0; i < arrived_.size(); ++i) own[i] += arrived_[i];
}

double RuntimeWeights::waited() const {
  return weights_ == nullptr ? 0 : weights_->waited() + gradients_->waited();
}
double RuntimeWeights::busy() const {
  return weights_ == nullptr ? 0 : weights_->busy() + gradients_->busy();
}

namespace {

int64_t bytes_of_floats(int64_t count) { return count * kBytesPerFp32; }

// Numbers that travel between stages, and tokens.
int64_t slot_bytes(const DecoderConfig& config, bool first, bool last) {
  const int64_t activations = config.tokens() * config.architecture.hidden;
  const int64_t sides = (first ? 0 : 2) + (last ? 0 : 2);
  const int64_t tokens = config.micro_batch * (config.length + 1);
  return bytes_of_floats(sides * activations) +
         tokens * static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace

std::vector<StageTask> tasks_of(const TrainSettings& settings, const Mesh& mesh,
                                int32_t stage) {
  const std::vector<StageTask> tasks =
      schedule_1f1b(stage, mesh.pp, settings.micro_batches(mesh));
  return settings.reuse ? pair_neighbours(tasks) : tasks;
}

Stage::Stage(const TrainSettings& settings, const MicroBatches& micro_batches,
             Runtime& runtime, Communicator& world, Engine& engine)
    : settings_(settings),
      micro_batches_(micro_batches),
      runtime_(runtime),
      plan_(runtime.plan()),
      at_(runtime.coordinates()),
      mesh_(runtime.plan().mesh),
      groups_(world, mesh_, at_),
      parallel_(groups_.parallel(runtime.plan(), at_)),
      engine_(engine),
      links_(world, mesh_, at_, micro_batches.per_home()),
      in_flight_(most_in_flight(at_.stage, mesh_.pp, micro_batches.per_home())),
      tasks_(tasks_of(settings, mesh_, at_.stage)),
      uses_(uses_of_modules(tasks_)),
      decoder_(make_decoder(world)),
      losses_(static_cast<size_t>(micro_batches.per_home())),
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

Stage::~Stage() {
  if (!device_times_) return;
  try {
    engine_.synchronize();
    device_weights_->settle_spans();
  } catch (const std::exception&) {
    return;  // the device is lost, and its times with it
  }
}

std::unique_ptr<TrainedDecoder<float>> Stage::make_decoder(
    Communicator& world) {
  Trace* trace = settings_.runtime.trace;
  if (!computes_on_device(plan_)) {
    weights_ = std::make_unique<RuntimeWeights>(world, runtime_, trace);
    return std::make_unique<Decoder<float>>(settings_.decoder, plan_.model,
                                            parallel_, engine_, *weights_,
                                            in_flight_, most_together(tasks_));
  }
  LaneClock* clock = nullptr;
  if (trace != nullptr && runtime_.only_issues()) {
    device_times_.emplace(engine_, [trace] { return trace->now(); });
    clock =
        &device_times_->add([this](Event& event) { engine_.record_in(event); });
  }
  device_weights_ = std::make_unique<RuntimeTensors<uint16_t>>(
      runtime_, trace, world.rank(), clock);
  const auto& make = settings_.make_device_decoder;
  return make ? make(settings_.decoder, plan_.model, engine_, *device_weights_)
              : make_device_decoder(settings_.decoder, plan_.model, engine_,
                                    *device_weights_);
}

Stage::Slot& Stage::slot_of(int64_t micro_batch) {
  return slots_[static_cast<size_t>(micro_batch % in_flight_)];
}

void Stage::forward(int64_t step, const StageTask& task,
                    std::span<double> losses) {
  passes_.clear();
  for (int64_t i = 0; i < task.count; ++i) {
    const int64_t m = task.micro_batch + i;
    Slot& slot = slot_of(m);
    micro_batches_.read_train(step, m, slot.sequences);
    if (!parallel_.has_embedding) links_.receive_input(slot.input);
    slot.output_sent.wait();
    passes_.push_back({m % in_flight_, slot.sequences, slot.input.data(),
                       slot.output.data()});
  }
  decoder_->forward(passes_, losses);
  if (parallel_.has_head) return;
  for (int64_t i = 0; i < task.count; ++i) {
    Slot& slot = slot_of(task.micro_batch + i);
    slot.output_sent = links_.send_output(slot.output);
  }
}

void Stage::backward(const StageTask& task) {
  passes_.clear();
  for (int64_t i = 0; i < task.count; ++i) {
    const int64_t m = task.micro_batch + i;
    Slot& slot = slot_of(m);
    if (!parallel_.has_head)
      links_.receive_output_gradient(slot.output_gradient);
    slot.input_gradient_sent.wait();
    passes_.push_back({m % in_flight_, slot.sequences,
                       slot.output_gradient.data(),
                       slot.input_gradient.data()});
  }
  decoder_->backward(
      passes_, task.micro_batch + task.count == micro_batches_.per_home());
  if (parallel_.has_embedding) return;
  for (int64_t i = 0; i < task.count; ++i) {
    Slot& slot = slot_of(task.micro_batch + i);
    slot.input_gradient_sent = links_.send_input_gradient(slot.input_gradient);
  }
}

void Stage::learn(int64_t step) {
  runtime_.begin_iteration(uses_, num_announcements(tasks_));
  if (weights_ != nullptr) weights_->refresh();
  decoder_->forget_logits();
  for (const StageTask& task : tasks_) {
    if (task.forward) {
      forward(step, task,
              std::span(losses_).subspan(static_cast<size_t>(task.micro_batch),
                                         static_cast<size_t>(task.count)));
      continue;
    }
    settings_.come_to({TrainPoint::kBackward, step,
                       mesh_.rank(at_.stage, at_.home, at_.t), runtime_});
    backward(task);
  }
  for (Slot& slot : slots_) {
    slot.output_sent.wait();
    slot.input_gradient_sent.wait();
  }
}

const std::vector<double>& Stage::losses() {
  decoder_->finish_losses();
  return losses_;
}

std::vector<double> Stage::evaluate(const EvaluationRounds& rounds) {
  const std::vector<StageTask> forwards(static_cast<size_t>(rounds.count));
  evaluation_uses_ = uses_of_modules(forwards);
  runtime_.begin_iteration(evaluation_uses_, 0);
  if (weights_ != nullptr) weights_->refresh();
  std::vector<double> losses;
  for (int64_t i = 0; i < rounds.count; ++i) {
    Slot& slot = slot_of(i);
    const int64_t number = micro_batches_.number_in_round(rounds.first + i);
    micro_batches_.read_held_out(number, slot.sequences);
    if (!parallel_.has_embedding) links_.receive_input(slot.input);
    slot.output_sent.wait();
    losses.push_back(decoder_->evaluate(
        slot.sequences, slot.input.data(), slot.output.data(),
        micro_batches_.counted(number, rounds.sequences)));
    if (!parallel_.has_head) slot.output_sent = links_.send_output(slot.output);
  }
  for (Slot& slot : slots_) slot.output_sent.wait();
  return losses;
}

double Stage::waited() const {
  return links_.waited() + (weights_ ? weights_->waited() : 0) +
         decoder_->comm_seconds();
}
double Stage::busy() const {
  return links_.busy() + (weights_ ? weights_->busy() : 0) +
         decoder_->comm_seconds();
}

int64_t Stage::reserved() const {
  return decoder_->reserved() +
         in_flight_ * slot_bytes(settings_.decoder, parallel_.has_embedding,
                                 parallel_.has_head) +
         bytes_of_floats(RuntimeWeights::extra_elements(plan_, at_));
}

int64_t Stage::memory(const TrainSettings& settings, const Plan& plan,
                      const Coordinates& at) {
  const Mesh& mesh = plan.mesh;
  const int64_t layers = plan.model.num_layers / mesh.pp;
  const bool first = at.stage == 0;
  const bool last = at.stage == mesh.pp - 1;
  const int64_t in_flight =
      most_in_flight(at.stage, mesh.pp, settings.micro_batches(mesh));
  Parallel part;
  part.first_layer = at.stage * layers;
  part.num_layers = layers;
  part.has_embedding = first;
  part.has_head = last;
  part.planned_tp = mesh.tp;
  part.planned_ep = mesh.ep;
  const int64_t together = most_together(tasks_of(settings, mesh, at.stage));
  const int64_t decoder =
      computes_on_device(plan)
          ? device_decoder_memory(settings.decoder)
          : decoder_memory<float>(settings.decoder, part, in_flight, together);
  return decoder + in_flight * slot_bytes(settings.decoder, first, last) +
         bytes_of_floats(RuntimeWeights::extra_elements(plan, at));
}

}  // namespace canzona::train
