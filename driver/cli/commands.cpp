#include "driver/cli/commands.h"

#include "driver/cli/flags.h"

namespace graphpipe::driver {
namespace {

constexpr CommandEntry kCommands[] = {
    {.name = "inspect",
     .summary = "show a model: inputs, parameters and what is trained, operators, batch",
     .example = "graphpipe inspect model.onnx",
     .add_flags = inspect_flags,
     .run = run_inspect},
    {.name = "lint",
     .summary = "report every problem of a model at once, and what training it would mean",
     .example = "graphpipe lint model.onnx --loss cross_entropy:logits,label",
     .add_flags = lint_flags,
     .run = run_lint},
    {.name = "profile",
     .summary = "measure a model's operators and the links on this machine, for plan --profile",
     .example = "graphpipe profile model.onnx --batch 8 --loss cross_entropy:logits,label -o profile.json",
     .add_flags = profile_flags,
     .run = run_profile},
    {.name = "plan",
     .summary = "make a plan: stages, devices, micro-batches, order",
     .example = "graphpipe plan model.onnx --devices 4 --batch 8 --loss cross_entropy:logits,label -o plan.json",
     .add_flags = plan_flags,
     .run = run_plan},
    {.name = "compare",
     .summary = "run several planners and policies on one model, in one simulator",
     .example = "graphpipe compare model.onnx --devices 4 --batch 8 --loss cross_entropy:logits,label "
                "--planners graphpipe,sequential --policies kfkb,gpipe",
     .add_flags = compare_flags,
     .run = run_compare},
    {.name = "simulate",
     .summary = "draw a plan's timeline and say where its time and memory go",
     .example = "graphpipe simulate plan.json",
     .add_flags = simulate_flags,
     .run = run_simulate},
    {.name = "schedule",
     .summary = "make a policy's schedule without a model: orders, times, pictures",
     .example = "graphpipe schedule --policy 1f1b --ranks 4 --micro-batches 8 --format csv -o schedule.csv",
     .add_flags = schedule_flags,
     .run = run_schedule},
    {.name = "check",
     .summary = "say whether a schedule can run, and what it costs",
     .example = "graphpipe check schedule.csv --costs 1,1,1 --json",
     .add_flags = check_flags,
     .run = run_check},
    {.name = "generate",
     .summary = "write the C++ programs of a plan",
     .example = "graphpipe generate plan.json -o out/",
     .add_flags = generate_flags,
     .run = run_generate},
    {.name = "build",
     .summary = "compile the programs in a generated folder",
     .example = "graphpipe build out/",
     .add_flags = build_flags,
     .run = run_build},
    {.name = "compile",
     .summary = "plan, generate and build in one go",
     .example = "graphpipe compile model.onnx --devices 4 --batch 8 --loss cross_entropy:logits,label -o out/",
     .add_flags = compile_flags,
     .run = run_compile},
    {.name = "run",
     .summary = "train: start one process per device on this host",
     .example = "graphpipe run out/ --data data/ --steps 5 --lr 0.05 --save weights.safetensors --json",
     .add_flags = run_flags,
     .run = run_run},
    {.name = "verify",
     .summary = "prove that the pipeline computes what one process computes",
     .example = "graphpipe verify out/ --data data/ --steps 5",
     .add_flags = verify_flags,
     .run = run_verify},
};

}  // namespace

std::span<const CommandEntry> all_commands() { return kCommands; }

}  // namespace graphpipe::driver
