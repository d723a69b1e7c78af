#include "canzona/model/experts_exchange.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "canzona/base/check.h"

namespace canzona {

PairExchange::PairExchange(const ExpertSizes& sizes, Communicator* ep)
    : sizes_(sizes),
      ep_(sizes.ranks == 1 ? nullptr : ep),
      arrivals_(static_cast<size_t>(sizes.experts)),
      cursors_(static_cast<size_t>(sizes.local())),
      rows_(static_cast<size_t>(sizes.local())) {
  const auto ranks = static_cast<size_t>(sizes.ranks);
  for (Runs* runs : {&away_, &arrived_})
    *runs = {std::vector<int64_t>(ranks), std::vector<int64_t>(ranks),
             std::vector<int64_t>(ranks)};
}

void PairExchange::Runs::set_width(int64_t element_bytes) {
  int64_t offset = 0;
  for (size_t r = 0; r < elements.size(); ++r) {
    bytes[r] = elements[r] * element_bytes;
    offsets[r] = offset;
    offset += bytes[r];
  }
}

void PairExchange::exchange(const std::byte* from, Runs& out, std::byte* to,
                            Runs& in, int64_t element_bytes,
                            std::string_view label) {
  const auto start = std::chrono::steady_clock::now();
  out.set_width(element_bytes);
  in.set_width(element_bytes);
  ep_->all_to_all_v(
      {{from, static_cast<size_t>(out.total_bytes())}, out.bytes, out.offsets},
      {{to, static_cast<size_t>(in.total_bytes())}, in.bytes, in.offsets},
      {.label = label});
  const std::chrono::duration<double> time =
      std::chrono::steady_clock::now() - start;
  seconds_ += time.count();
}

void PairExchange::tell_counts(const int64_t* counts, int64_t* arrivals) {
  if (ep_ == nullptr) {
    std::copy_n(counts, sizes_.experts, arrivals);
  } else {
    std::ranges::fill(away_.elements, sizes_.local());
    std::ranges::fill(arrived_.elements, sizes_.local());
    exchange(reinterpret_cast<const std::byte*>(counts), away_,
             reinterpret_cast<std::byte*>(arrivals), arrived_, sizeof(int64_t),
             "counts of pairs");
  }
  use_counts(counts, arrivals);
}

void PairExchange::use_counts(const int64_t* counts, const int64_t* arrivals) {
  const int64_t local = sizes_.local();
  std::copy_n(arrivals, sizes_.experts, arrivals_.begin());
  std::ranges::fill(rows_, Rows{});
  for (int64_t r = 0; r < sizes_.ranks; ++r) {
    const int64_t* theirs = arrivals + r * local;
    const auto place = static_cast<size_t>(r);
    away_.elements[place] = std::accumulate(
        counts + r * local, counts + (r + 1) * local, int64_t{0});
    arrived_.elements[place] =
        std::accumulate(theirs, theirs + local, int64_t{0});
    for (int64_t e = 0; e < local; ++e)
      rows_[static_cast<size_t>(e)].count += theirs[e];
  }
  int64_t begin = 0;
  for (Rows& rows : rows_) {
    rows.begin = begin;
    begin += rows.count;
  }
  CANZONA_CHECK(begin <= sizes_.most_rows(), begin, " rows, at most ",
                sizes_.most_rows(), " have a place");
}

template <class Visit>
void PairExchange::for_each_arrival(const Visit& visit) {
  std::ranges::transform(rows_, cursors_.begin(), &Rows::begin);
  int64_t by_rank = 0;
  for (size_t i = 0; i < arrivals_.size(); ++i) {
    int64_t& by_expert = cursors_[i % cursors_.size()];
    visit(by_rank, by_expert, arrivals_[i]);
    by_rank += arrivals_[i];
    by_expert += arrivals_[i];
  }
}

template <class Real>
void PairExchange::to_experts(const Real* pairs, Real* rows, int64_t width,
                              Real* spare) {
  if (ep_ == nullptr) {
    CANZONA_CHECK(pairs == rows, "without other ranks rows are the pairs");
    return;
  }
  const int64_t row_bytes = width * static_cast<int64_t>(sizeof(Real));
  exchange(reinterpret_cast<const std::byte*>(pairs), away_,
           reinterpret_cast<std::byte*>(spare), arrived_, row_bytes,
           "pairs to experts");
  for_each_arrival([&](int64_t from, int64_t to, int64_t count) {
    std::copy_n(spare + from * width, count * width, rows + to * width);
  });
}

template <class Real>
void PairExchange::to_tokens(const Real* rows, Real* pairs, int64_t width,
                             Real* spare) {
  if (ep_ == nullptr) {
    CANZONA_CHECK(pairs == rows, "without other ranks rows are the pairs");
    return;
  }
  const int64_t row_bytes = width * static_cast<int64_t>(sizeof(Real));
  for_each_arrival([&](int64_t to, int64_t from, int64_t count) {
    std::copy_n(rows + from * width, count * width, spare + to * width);
  });
  exchange(reinterpret_cast<const std::byte*>(spare), arrived_,
           reinterpret_cast<std::byte*>(pairs), away_, row_bytes,
           "pairs to tokens");
}

template void PairExchange::to_experts<float>(const float*, float*, int64_t,
                                              float*);
template void PairExchange::to_experts<double>(const double*, double*, int64_t,
                                               double*);
template void PairExchange::to_tokens<float>(const float*, float*, int64_t,
                                             float*);
template void PairExchange::to_tokens<double>(const double*, double*, int64_t,
                                              double*);

}  // namespace canzona
