#include <chrono>
#include <fmt/format.h>
#include "benchmarks/memory/measure.h"
#include "benchmarks/memory/workloads.h"
#include "benchmarks/memory/workloads_sequence.h"
#include "rewind/core/predict/search.h"
#include "rewind/core/recompute/evaluate.h"
#include "rewind/core/recompute/planner.h"
using namespace rw; using namespace rw::memory; struct Clock{ static double now(){timespec t; clock_gettime(CLOCK_PROCESS_CPUTIME_ID,&t); return t.tv_sec+1e-9*t.tv_nsec;}};
int main(int c,char**v){
  struct N{const char*n;Workload w;};
  std::vector<N> all={{"wavenet6",wavenet_workload({})},{"seq2seq16",seq2seq_workload({})},{"chain1000",chain_workload(1000,1000)},{"bert-base",bert_workload({.preset="base",.batch=8})},{"resnet1001",resnet1001_workload(4,DType::f32)},{"chain20000",chain_workload(20000,1000)},{"resnet50",resnet50_workload(32,DType::f32)}};
  auto s=[](auto d){return d;};
  for(auto&n:all){ if(c>1){bool f=false; for(int i=1;i<c;++i) f|=!strcmp(v[i],n.n); if(!f) continue;}
    auto p=open_profile("rx7900xtx.json");
    auto t0=Clock::now();
    RecomputeSearch search(p.open,[&]{n.w.run();},{.candidates=12});
    auto t1=Clock::now();
    const auto&g=search.recorded().graph; double fwd=0; for(auto&r:g.records) fwd+=r.cost;
    fmt::print("{} {} records: plain {:.3f} s; modelled {}, peak {}",n.n,g.records.size(),s(t1-t0),evaluate(g,{}).peak,search.plain().peak()); fflush(stdout);
    { auto forecast=dry_run(p.open(),[&]{n.w.run();},{.pack=false}); uint64_t calls=0; for(auto&w:search.plain().forecast.work) calls+=w.calls; fmt::print(" calls {}",calls); fmt::print(" really {}",forecast.memory.peak); }
    fmt::print(" speed {:.3f}", search.speed().peak()/double(search.plain().peak()));
    for(double sh:{.7,.5,.35}){ auto a=Clock::now(); try{ auto ch=search.budget(uint64_t(sh*search.plain().peak())); fmt::print(" {}: {:.2f} s cost {:.2f}",sh,s(Clock::now()-a),100*search.cost(ch)/fwd/3);}catch(const OutOfMemory&){fmt::print(" {}: {:.2f} s -",sh,s(Clock::now()-a));} fflush(stdout);}
    fmt::print(" choices {} work {}M limit {}M cut {}\n",search.choices().size(), search.work()/1000000, search.work_limit()/1000000, search.is_cut());
  }
}
