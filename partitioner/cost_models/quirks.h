#pragma once
// Where original programs deviate from their papers, or have an evident bug: what --compat switches on, by the names of
// docs/planners.md. A planner asks for one by what it does: request.has(quirks::kFillIgnoresReplicas).

#include "partitioner/planner.h"

namespace graphpipe::partitioner::quirks {

// PipeDream
inline constexpr Quirk kFreeTraffic{
    "PD1", "traffic between stages costs nothing, as without the program's compression ratio", false};
inline constexpr Quirk kForksChargedAtCut{"PD2", "forks whose readers are all before a cut are charged at it"};
inline constexpr Quirk kGroupEndPaysTwice{"PD3",
                                          "what leaves a group is charged inside of it too, at the inner bandwidth"};
inline constexpr Quirk kParallelLinksAtFirstStage{
    "PD4", "links of a group work in parallel for the first stage of a level only"};
inline constexpr Quirk kLinksOfLevelBelow{"PD5", "a group has as many links as units of the level below"};
inline constexpr Quirk kFirstSourceOnly{"PD6", "cuts that the first source of the file does not reach are not seen"};
inline constexpr Quirk kOneCopyLess{"PD8", "memory counts one copy less than the runtime keeps"};

// DAPPLE
inline constexpr Quirk kEqualPipelinesOnly{"D1",
                                           "only data parallelism, two stages, or one device per stage are found"};
inline constexpr Quirk kFillIgnoresReplicas{"D3", "filling the pipeline ignores replicas inside a stage"};
inline constexpr Quirk kReducesWeightsOfNext{"D4",
                                             "a stage that is not the last also reduces the first weights of the next"};
inline constexpr Quirk kFirstOnUntouchedMachines{"D7", "the first stage is only placed on untouched machines"};
inline constexpr Quirk kFixedBandwidths{
    "D9", "links of 25 GB/s inside a machine, 1 GB/s between two and 3 GB/s of collectives, whatever the machine"};

// Piper and its equal split
inline constexpr Quirk kGreedyKnapsack{"P1", "variants of layers by a greedy knapsack instead of the best choice"};
inline constexpr Quirk kMixedTimeUnits{
    "P5", "times in milliseconds against bytes per second, where the file's times are milliseconds"};
inline constexpr Quirk kReplicasAlways{"E1", "the equal split has replicas even where --no-replication forbids them"};
inline constexpr Quirk kEqualSplitInstead{
    "E2", "the stand-in that Piper's authors measured: the equal split in Piper's terms"};
inline constexpr Quirk kDevicesForEmptyEnd{
    "E3", "an equal split with the other layers apart takes devices for an end where no layer stands"};

// max-throughput
inline constexpr Quirk kBiconnectedTogether{
    "W4", "biconnected components stay together, on one linear order (the emulation of PipeDream)", false};
inline constexpr Quirk kOneLinearOrder{"linear", "placements along one last-in-first-out order only", false};

}  // namespace graphpipe::partitioner::quirks
