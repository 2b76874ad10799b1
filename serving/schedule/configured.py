"""The scheduler's rules out of a configuration."""

from serving.config import ServeConfig
from serving.schedule.priority import Rules, Treatment
from serving.schedule_config import SloConfig
from toolkit.core.sample import SloClass


def rules_of(config: ServeConfig) -> Rules:
    """What `schedule` and the SLO classes say."""
    schedule = config.schedule
    sections: dict[SloClass, SloConfig] = {slo: getattr(config, slo.value) for slo in SloClass}
    return Rules(
        treatments={
            slo: Treatment(
                weight=section.weight,
                short_wait_s=section.short_wait_s,
                long_wait_s=section.long_wait_s,
                room_share=section.room_share,
                target_s=schedule.first_token_share * section.ttft_budget_s,
            )
            for slo, section in sections.items()
        },
        max_in_flight=schedule.max_in_flight,
        max_waiting=schedule.max_waiting,
        min_in_flight=schedule.min_in_flight,
        adaptive=schedule.adaptive,
        short_tokens=schedule.short_tokens,
        workload_share=schedule.workload_share,
        lease_cap=config.lease.cap,
        kinds={one: pool.name for pool in config.pools for one in pool.workload_classes},
        shares={pool.name: pool.share for pool in config.pools},
        shed=config.shed.classes,
        shed_retry_s=config.shed.retry_after_s,
    )
