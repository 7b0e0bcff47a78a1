#pragma once
// Where policies take their in-flight numbers from: the request, the latency-aware rule of cost/in_flight.h, or depth.

#include <optional>

#include "scheduler/policies/policies.h"

namespace graphpipe::scheduler {

/// The request's numbers; without them those that the planner counts memory with (cost/in_flight.h).
IdMap<StageId, Samples> in_flight_of(const PolicyRequest& request);

/// Seconds per sample that compute and bandwidth allow.
double attainable_period(const PolicyRequest& request);

enum class UseK : uint8_t { kNo, kYes };
/// GraphPipe's numbers for equal costs and no latency, in samples: a sink holds its round r = k b (b where k is not
/// used), a stage the least multiple of b that is at least n(j) + max(r, r(j)) over the stages j that it feeds. With
/// equal sizes that is b times the longest path to a sink. Round robin counts one item per replica.
IdMap<StageId, Samples> depth_in_flight(const StageGraph& graph, UseK use_k);

/// The samples of a stage's round: what its replicas take in turn, k times where k is used.
int64_t round_of(const ir::Stage& stage, UseK use_k);
/// The samples after which all stages are at the start of a round; nothing where these are more than `limit`.
std::optional<int64_t> common_round(const StageGraph& graph, UseK use_k, int64_t limit);

/// PipeDream's numbers: a stage's replicas, each with one item, and below it the longest path counted the same; in
/// samples. With one replica per stage that is the depth.
IdMap<StageId, Samples> replicas_in_flight(const StageGraph& graph);

/// Forwards that each replica runs to have `samples` in flight in all of them; at least 1.
int64_t items_per_replica(const StageGraph& graph, StageId stage, Samples samples);

/// 1F1B with these in-flight numbers on any stage graph: n(s) forwards, then one backward and one forward in turn.
/// Numbers with which lists would deadlock are raised. Errors (kBadPlan): numbers for other stages.
Result<Schedule> one_forward_one_backward(const StageGraph& graph, const IdMap<StageId, Samples>& in_flight,
                                          const char* policy);

}  // namespace graphpipe::scheduler
