// A group whose messages NCCL executes on a lane, paired with a group of the
// same ranks on the control plane. Only nccl_session.cc uses this directly.
//
// Without a lane it is just the control plane's group. With one, the next
// poll() issues everything posted as one NCCL group (ncclGroupStart …
// ncclGroupEnd). poll() returns true once NCCL has enqueued it on the lane,
// which takes longer when ranks connect for the first time.
#pragma once

#include <memory>
#include <vector>

#include "canzona/comm/nccl/nccl_world.h"

namespace canzona {

class NcclTransport final : public Transport {
 public:
  // `host` is the same group on the control plane; `world_ranks` are its ranks'
  // numbers in the world.
  NcclTransport(std::shared_ptr<NcclWorld> world,
                std::unique_ptr<Transport> host, std::vector<int> world_ranks);
  ~NcclTransport() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  void copy_by(const WireOps& ops) override;
  Lane* lane() override { return lane_.get(); }
  bool can_order() const override { return lane_ == nullptr; }
  std::unique_ptr<Transport> ordered_subgroup(
      std::span<const int> members, int64_t id, int color, Deadline until,
      std::shared_ptr<Lane> lane) override;
  void set_of_host(bool of_host) override { of_host_ = of_host; }
  void watch(const IssuedOperation& operation) override;
  bool takes_many() const override { return lane_ != nullptr; }
  void register_memory(std::span<std::byte> memory, SharedUse use) override;
  std::byte* allocate(int64_t bytes) override;
  void release(std::byte* memory) override;

  void post_send(int to, std::span<const std::byte> data) override;
  void post_receive(int from, std::span<std::byte> data) override;
  bool poll() override;
  void pause(Deadline until) override;
  void retract() noexcept override;

  void pass_gate(std::string_view group, Operation operation,
                 std::string_view label) override;
  bool is_pending(int peer) const override;
  void enter(int64_t sequence) override;
  bool has_entered(int peer, int64_t sequence) const override {
    return host_->has_entered(peer, sequence);
  }
  int lost_peer() override { return host_->lost_peer(); }
  void leave() noexcept override { host_->leave(); }

  void abort(std::string_view reason) override { host_->abort(reason); }
  bool is_aborted() const override { return host_->is_aborted(); }
  std::string abort_reason() const override { return host_->abort_reason(); }
  // A subgroup of a group with a lane has the same lane.
  std::unique_ptr<Transport> subgroup(std::span<const int> members, int64_t id,
                                      int color, Deadline until) override;

  bool post_own_gather(std::span<std::byte> whole) override;
  bool post_own_broadcast(int root, std::span<std::byte> data) override;
  bool post_own_integers(Reduction reduction,
                         std::span<std::byte> data) override;

  bool has_own_sums() const override { return lane_ != nullptr; }
  bool is_beside_lanes() const override { return lane_ == nullptr; }
  void prepare_own_sums(Deadline /*until*/) override {}
  void post_own_all_reduce(std::span<float> data) override;
  void post_own_reduce_scatter(const float* input, std::span<const int> counts,
                               float* output) override;

 private:
  // One NCCL call to be made by the next poll().
  struct Posted {
    enum class Kind : uint8_t {
      kSend,
      kReceive,
      kAllGather,
      kBroadcast,
      kAllReduce,
      kReduce,
      kReduceScatter
    };
    Kind kind = Kind::kSend;
    const void* from = nullptr;
    void* to = nullptr;
    size_t count = 0;
    int peer = 0;  // or root
    NcclType type = NcclType::kUint8;
    NcclReduction reduction = NcclReduction::kSum;
  };

  void issue_on(std::shared_ptr<Lane> lane, Deadline until);
  // Returns true if messages posted now are for the control plane.
  bool is_of_host() const { return lane_ == nullptr || of_host_; }
  void post(const Posted& call) { posted_.push_back(call); }
  NcclResult issue(const NcclApi& nccl, const Posted& call) const;
  void issue_all();

  std::shared_ptr<NcclWorld> world_;
  std::unique_ptr<Transport> host_;
  std::vector<int> world_ranks_;
  std::shared_ptr<Lane> lane_;
  bool of_host_ = false;
  void* stream_ = nullptr;
  NcclComm* comm_ = nullptr;  // null for a single rank
  std::shared_ptr<NcclProgress> progress_;
  std::vector<Posted> posted_;
  bool issuing_ = false;
  int64_t free_before_ = -1;  // free bytes before a first use; -1: none
  void end_registrations() noexcept;

  std::vector<NcclWorld::Registration*> registrations_;
};

}  // namespace canzona
