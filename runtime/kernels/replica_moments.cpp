#include "runtime/kernels/replica_moments.h"

#include <span>

namespace graphpipe::runtime {
namespace {

/// What one replica has given: a count, then two numbers per channel.
struct Share {
  double count = 0;
  std::span<const double> first, second;
};

std::vector<Share> gather(int64_t count, const std::vector<double>& first, const std::vector<double>& second,
                          ReplicaExchange& replicas) {
  const size_t channels = first.size();
  std::vector<double> own{static_cast<double>(count)};
  own.insert(own.end(), first.begin(), first.end());
  own.insert(own.end(), second.begin(), second.end());
  const std::span<const double> all = replicas.gather(own);
  std::vector<Share> shares;
  for (size_t at = 0; at < all.size(); at += own.size())
    shares.push_back({all[at], all.subspan(at + 1, channels), all.subspan(at + 1 + channels, channels)});
  return shares;
}

double total_count(const std::vector<Share>& shares) {
  double count = 0;
  for (const Share& share : shares) count += share.count;
  return count;
}

}  // namespace

// (Chan, Golub & LeVeque, Updating formulae and a pairwise algorithm for computing sample variances, 1979.)
Moments of_all_replicas(const Moments& own, ReplicaExchange& replicas) {
  const std::vector<Share> shares = gather(own.count, own.means, own.squares, replicas);
  const double count = total_count(shares);
  Moments all{.count = static_cast<int64_t>(count), .means = {}, .squares = {}};
  for (size_t channel = 0; channel < own.means.size(); ++channel) {
    double sum = 0, squares = 0;
    for (const Share& share : shares) sum += share.count * share.first[channel];
    const double mean = sum / count;
    for (const Share& share : shares) {
      const double apart = share.first[channel] - mean;
      squares += share.second[channel] + share.count * apart * apart;
    }
    all.means.push_back(mean);
    all.squares.push_back(squares);
  }
  return all;
}

ChannelSums of_all_replicas(const ChannelSums& own, ReplicaExchange& replicas) {
  const std::vector<Share> shares = gather(own.count, own.first, own.second, replicas);
  ChannelSums all{.count = static_cast<int64_t>(total_count(shares)),
                  .first = std::vector<double>(own.first.size(), 0),
                  .second = std::vector<double>(own.second.size(), 0)};
  for (const Share& share : shares)
    for (size_t channel = 0; channel < own.first.size(); ++channel) {
      all.first[channel] += share.first[channel];
      all.second[channel] += share.second[channel];
    }
  return all;
}

}  // namespace graphpipe::runtime
