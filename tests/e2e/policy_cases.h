#pragma once
// Each policy that trains, with flags that give it stages and devices.

#include <string>
#include <vector>

namespace graphpipe::tests {

struct PolicyCase {
  std::string policy;
  std::vector<std::string> flags;
};

// Four stages, on four devices or two; one folder holds them all, because their code does not depend on the order, but
// for this: where a schedule runs the two gradients of a stage apart, so does its code, and policies of chains and
// replicas of a stage may send other tensors. Cases of the same code stand together, since each change of it compiles
// the stages again. Last come those whose code other tests of that folder have, too.
inline const std::vector<PolicyCase>& cases_of_cut() {
  const std::vector<std::string> four = {"--devices", "4"}, two = {"--devices", "2"};
  const auto with = [](std::vector<std::string> flags, const std::vector<std::string>& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  static const std::vector<PolicyCase> kCases = {
      // The gradients apart; `auto` takes such a policy.
      {"auto", four},
      {"zb-1p", four},
      {"zb-2p", four},
      {"interleaved-zb", two},
      {"zb-v", two},
      {"v-half", two},
      {"v-min", two},
      {"dualpipev", two},
      {"dualpipe", four},
      // Together: chains, then any stages.
      {"chimera", four},
      {"interleaved", with(two, {"--group", "2"})},
      {"looped-bfs", two},
      {"v-1f1b", two},
      {"pipedream-rr", with({"--devices", "5", "--stages", "4"}, {"--replicas", "1=2"})},
      {"gpipe", with(four, {"--backward", "fifo"})},
      {"gpipe", with(four, {"--backward", "lifo"})},
      {"1f1b", four},
      {"dapple-a", four},
      {"dapple-b", four},
      {"kfkb", four},
      {"none", four},
      {"pipedream", four},
      {"pipedream", with(four, {"--vertical-sync"})},
      {"2bw", four},
      {"2bw", with(four, {"--update", "4"})},
  };
  return kCases;
}

// The whole model on every device.
inline const std::vector<PolicyCase>& cases_of_whole() {
  static const std::vector<PolicyCase> kCases = {
      {"data-parallel", {"--devices", "3"}},
      {"parameter-server", {"--devices", "3"}},
  };
  return kCases;
}

}  // namespace graphpipe::tests
