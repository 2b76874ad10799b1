"""SLO rules, alerts and dashboards as code (see docs/architecture.md for what lands here)."""
