#include "scheduler/policies.h"

namespace graphpipe::scheduler {
namespace {

constexpr PolicyChoices kBackwardOrder = {.backward_order = true}, kGroup = {.group = true},
                        kVerticalSync = {.vertical_sync = true};
/// 2bw is in vertical sync anyway.
constexpr PolicyChoices kUpdate = {.vertical_sync = true, .update = true};
/// auto hands its request to every synchronous policy.
constexpr PolicyChoices kSynchronous = {.backward_order = true, .group = true};

constexpr Policy kPolicies[] = {
    {"kfkb", "k forwards, then k backwards, with the fewest samples in flight that keep the full rate", order_kfkb},
    {"gpipe", "all forwards, then all backwards (--backward fifo|lifo)", order_gpipe, StageShape::kAny, false, false,
     false, kBackwardOrder},
    {"1f1b", "one forward, one backward; as many in flight as stages follow (PipeDream-Flush)", order_1f1b},
    {"dapple-a", "DAPPLE's early backward, policy A: the order of 1f1b", order_dapple_a},
    {"dapple-b", "DAPPLE's policy B: about twice the warm-up of 1f1b, less sensitive to latency", order_dapple_b},
    {"zb-1p", "backward split in two, weight gradients fill the bubble within the memory of 1f1b", order_zb_1p},
    {"zb-2p", "like zb-1p with twice the memory", order_zb_2p},
    {"interleaved", "1f1b over several chunks of a chain on each device (--group)", order_interleaved,
     StageShape::kLoop, false, false, false, kGroup},
    {"interleaved-zb", "interleaved with a split backward", order_interleaved_zb, StageShape::kLoop, false, false,
     false, kGroup},
    {"looped-bfs", "all micro-batches through a device's first chunk, then through its next", order_looped_bfs,
     StageShape::kLoop},
    {"zb-v", "zero bubble with two chunks per device in a V, within the memory of 1f1b", order_zb_v, StageShape::kV},
    {"v-1f1b", "two chunks per device in a V, whole backwards, two thirds of the memory of 1f1b", order_v_1f1b,
     StageShape::kV},
    {"v-half", "zero bubble in a V with half of the memory of 1f1b", order_v_half, StageShape::kV},
    {"v-min", "zero bubble in a V with about a third of the memory of 1f1b", order_v_min, StageShape::kV},
    {"dualpipe", "a chain fed from both ends, two replicas, forwards beside backwards", order_dualpipe,
     StageShape::kBidirectional},
    {"dualpipev", "dualpipe folded into a V: one replica, two chunks per device", order_dualpipev, StageShape::kV},
    {"chimera", "a chain fed from both ends in units of as many micro-batches as devices", order_chimera,
     StageShape::kBidirectional},
    {"pipedream", "1f1b without a flush: an update after every micro-batch, weight versions stashed (--vertical-sync)",
     order_pipedream, StageShape::kAny, true, false, false, kVerticalSync},
    {"pipedream-rr", "pipedream with replicas that take micro-batches in turn (1F1B-RR)", order_pipedream_rr,
     StageShape::kAny, true, false, true, kVerticalSync},
    {"2bw", "1f1b without a flush, updates delayed by one so that two weight versions are enough (--update)", order_2bw,
     StageShape::kAny, true, false, false, kUpdate},
    {"data-parallel", "replicas of the whole model, one synchronous update", order_data_parallel,
     StageShape::kReplicas},
    {"parameter-server", "replicas whose updates are applied one by one, in the order of the micro-batches",
     order_parameter_server, StageShape::kReplicas, true, false, true},
    {"inference", "forwards only", order_inference, StageShape::kAny, false, true},
    {"auto", "the synchronous policy that simulates fastest within the memory, improved by a search", order_auto,
     StageShape::kAny, false, false, false, kSynchronous},
    {"none", "no pipelining: one micro-batch after the other", order_none},
};

}  // namespace

Diagnostic refused(std::string_view policy, std::string_view what, std::string hint) {
  return Diagnostic{.code = Code::kBadPlan, .message = text(policy, ": ", what), .hint = std::move(hint)};
}

std::span<const Policy> all_policies() { return kPolicies; }

const Policy* find_policy(std::string_view name) {
  for (const Policy& policy : kPolicies)
    if (policy.name == name) return &policy;
  return nullptr;
}

}  // namespace graphpipe::scheduler
