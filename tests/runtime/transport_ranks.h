#pragma once
// Ranks as forked processes over one transport, for tests of what runs over channels.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/transport/channel.h"

namespace graphpipe::runtime::test {

/// Lies in memory that the test and its ranks share.
struct RankReport {
  int exit_code = 0;       // -1 where a signal ended it
  int64_t bytes[16] = {};  // for the test's own counting
  char error[600] = {};
};
inline constexpr int kRankFoundFailure = 6, kRankFailed = 98;

/// The transports that work between plain processes of this host; where the fake of CUDA and NCCL is preloaded
/// (tests/runtime/fake_nccl), NCCL alone.
std::vector<TransportEntry> testable_transports();

/// Runs `body` on each rank with an open transport; what it returns is the rank's exit code, a RunError is reported
/// with kRankFoundFailure (kPeerFailed) or kRankFailed.
std::vector<RankReport> run_on_ranks(
    const TransportEntry& entry, int32_t ranks, const std::function<std::vector<ChannelSpec>(int32_t rank)>& channels,
    const std::function<int(int32_t rank, std::unique_ptr<Transport>, RankReport&)>& body);

}  // namespace graphpipe::runtime::test
