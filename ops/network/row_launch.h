// Launching row kernels: by the form that keeps a row in registers where device and tensors suit
// it.
#pragma once

#include <algorithm>

#include "../../core/backend/row_teams.h"
#include "../../core/tensor/launch.h"

namespace rw::detail {

// Queues `kept` (a form of shaders/kept_rows.glsl) or else `kernel`, with a workgroup per row.
// `constant`: what both take as their constant 0. P has rows and cols.
template <class P>
void launch_rows(const char* kernel, const char* kept, std::initializer_list<Arg> args,
                 const P& params, uint32_t constant) {
  const bool are_flat =
      std::all_of(args.begin(), args.end(), [](const Arg& arg) { return is_flat(*arg.tensor); });
  const RowTeams teams = row_teams(args.begin()->tensor->device().info(), params.rows, params.cols);
  if (are_flat && teams.fit)
    launch(kept, args, params,
           {.threads = {teams.groups, 1, 1}, .variant = {constant, teams.team, teams.rounds}});
  else
    launch(kernel, args, params, {.threads = {params.rows, 1, 1}, .variant = {constant}});
}

}  // namespace rw::detail
