"""The RECORDS paper (ICLR 2023) as data: its tables and figures, the runs behind them, and what was published."""
