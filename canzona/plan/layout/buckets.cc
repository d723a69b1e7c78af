#include "canzona/plan/layout/buckets.h"

#include <algorithm>
#include <map>

#include "canzona/plan/schedule/modules.h"

namespace canzona {
namespace {

// Collects the buckets of one buffer.
class BucketList {
 public:
  BucketList(int32_t buffer, int64_t limit) : buffer_(buffer), limit_(limit) {}

  void add_matrix_tensor(int32_t tensor, int64_t elements) {
    OpenBucket& bucket = open();
    bucket.matrix_tensors.push_back(tensor);
    bucket.adamw_tensors.insert(bucket.adamw_tensors.end(), waiting_.begin(),
                                waiting_.end());
    waiting_.clear();
    bucket.elements += elements;
    closed_ = bucket.elements >= limit_;
  }

  // Waits for the next matrix tensor if no bucket is open, so that AdamW
  // tensors alone never make a bucket.
  void add_adamw_tensor(int32_t tensor) {
    if (closed_) {
      waiting_.push_back(tensor);
    } else {
      buckets_.back().adamw_tensors.push_back(tensor);
    }
  }

  void add_closing_adamw_tensor(int32_t tensor, int64_t elements) {
    open().adamw_tensors.push_back(tensor);
    adamw_elements_ += elements;
    closed_ = adamw_elements_ >= limit_;
    if (closed_) adamw_elements_ = 0;
  }

  std::vector<OpenBucket> take(bool join_small_tail) {
    if (!waiting_.empty()) {
      OpenBucket& last = buckets_.empty() ? open() : buckets_.back();
      last.adamw_tensors.insert(last.adamw_tensors.end(), waiting_.begin(),
                                waiting_.end());
    }
    if (join_small_tail && buckets_.size() > 1 &&
        buckets_.back().elements < limit_ - buckets_.back().elements &&
        !buckets_.back().matrix_tensors.empty()) {
      join_tail();
    }
    return std::move(buckets_);
  }

 private:
  OpenBucket& open() {
    if (closed_) {
      buckets_.push_back({buffer_, {}, {}, 0});
      closed_ = false;
    }
    return buckets_.back();
  }

  void join_tail() {
    OpenBucket tail = std::move(buckets_.back());
    buckets_.pop_back();
    OpenBucket& last = buckets_.back();
    last.elements += tail.elements;
    last.matrix_tensors.insert(last.matrix_tensors.end(),
                               tail.matrix_tensors.begin(),
                               tail.matrix_tensors.end());
    last.adamw_tensors.insert(last.adamw_tensors.end(),
                              tail.adamw_tensors.begin(),
                              tail.adamw_tensors.end());
  }

  int32_t buffer_;
  int64_t limit_;
  bool closed_ = true;
  int64_t adamw_elements_ = 0;  // of the open bucket, where they close it
  std::vector<OpenBucket> buckets_;
  std::vector<int32_t> waiting_;
};

}  // namespace

std::vector<Buffer> make_buffers(const Mesh& mesh, const Model& model,
                                 std::vector<int32_t>& buffer_of) {
  std::vector<Buffer> buffers;
  const int32_t per_stage = mesh.ep > 1 ? 1 + mesh.ep : 1;
  for (int32_t stage = 0; stage < mesh.pp; ++stage) {
    buffers.push_back({stage, -1, mesh.homes()});
    for (int32_t e = 0; mesh.ep > 1 && e < mesh.ep; ++e) {
      buffers.push_back({stage, e, mesh.expert_homes()});
    }
  }
  buffer_of.clear();
  for (const Tensor& tensor : model.tensors) {
    buffer_of.push_back(stage_of(mesh, model, tensor) * per_stage + 1 +
                        ep_of(mesh, model, tensor));
  }
  return buffers;
}

std::vector<OpenBucket> make_buckets(const Model& model,
                                     const std::vector<Buffer>& buffers,
                                     const std::vector<int32_t>& buffer_of,
                                     const std::vector<int64_t>& shard_elements,
                                     int64_t bucket_elements,
                                     bool join_small_tail) {
  std::vector<BucketList> lists;
  for (size_t b = 0; b < buffers.size(); ++b) {
    lists.emplace_back(static_cast<int32_t>(b), bucket_elements);
  }
  // Without any matrix-rule tensor (an element-wise rule) all tensors count.
  const bool element_wise =
      std::none_of(model.tensors.begin(), model.tensors.end(),
                   [](const Tensor& t) { return t.matrix_rule; });
  for (size_t i = model.tensors.size(); i-- > 0;) {
    BucketList& list = lists[static_cast<size_t>(buffer_of[i])];
    const auto tensor = static_cast<int32_t>(i);
    if (model.tensors[i].matrix_rule) {
      list.add_matrix_tensor(tensor, shard_elements[i]);
    } else if (element_wise) {
      list.add_closing_adamw_tensor(tensor, shard_elements[i]);
    } else {
      list.add_adamw_tensor(tensor);
    }
  }
  std::vector<OpenBucket> all;
  for (BucketList& list : lists) {
    for (OpenBucket& bucket : list.take(join_small_tail)) {
      all.push_back(std::move(bucket));
    }
  }
  return all;
}

std::vector<OpenBucket> make_module_buckets(
    const Model& model, const std::vector<int32_t>& buffer_of,
    const std::vector<int64_t>& shard_elements, MessageUnit unit) {
  std::map<int32_t, std::vector<OpenBucket>> lists;  // by buffer
  std::map<int32_t, int32_t> open;                   // module, by buffer
  for (size_t i = model.tensors.size(); i-- > 0;) {
    const Tensor& tensor = model.tensors[i];
    const int32_t module = module_of(model, tensor);
    std::vector<OpenBucket>& list = lists[buffer_of[i]];
    const bool fits = !list.empty() && unit == MessageUnit::kModule &&
                      open[buffer_of[i]] == module;
    if (!fits) list.push_back({buffer_of[i], {}, {}, 0});
    open[buffer_of[i]] = module;
    OpenBucket& bucket = list.back();
    const auto number = static_cast<int32_t>(i);
    if (tensor.matrix_rule) {
      bucket.matrix_tensors.push_back(number);
      bucket.elements += shard_elements[i];
    } else {
      bucket.adamw_tensors.push_back(number);
    }
  }
  std::vector<OpenBucket> all;
  for (auto& [buffer, list] : lists)
    for (OpenBucket& bucket : list) all.push_back(std::move(bucket));
  return all;
}

}  // namespace canzona
